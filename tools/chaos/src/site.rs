//! Where a part of the load runs: on one hub with a folder of its own, which is killed; or on several hubs that all parts
//! share, with whatever goes wrong there.

use super::api::Doors;
use super::calls::Trouble;
use super::cluster::Cluster;
use super::hub::{Hub, HubSetup, folder_bytes};
use super::plan::{End, Plan};
use std::sync::Arc;

/// Where a part of the load runs.
pub enum Site {
    /// One hub.
    One(Box<(HubSetup, Hub)>),
    /// Several.
    Many(Arc<Cluster>),
}

impl Site {
    /// One hub on an empty folder.
    pub fn one(setup: HubSetup, part_bytes: u64) -> Result<Self, String> {
        std::fs::create_dir_all(&setup.folder)
            .map_err(|error| format!("{} cannot be made: {error}", setup.folder.display()))?;
        let hub = setup.start(part_bytes)?;
        Ok(Self::One(Box::new((setup, hub))))
    }

    /// Where calls go.
    pub fn doors(&self) -> Doors {
        match self {
            Self::One(one) => Doors::new([one.1.base.clone()]),
            Self::Many(cluster) => cluster.doors().clone(),
        }
    }

    /// Whether it is several hubs, so that nobody knows when a topic moves from one to another.
    pub fn is_many(&self) -> bool {
        matches!(self, Self::Many(_))
    }

    /// What those who call in a round have to expect.
    pub fn trouble(&self, plan: &Plan) -> Trouble {
        match self {
            Self::One(_) => Trouble::End(plan.end),
            Self::Many(cluster) => cluster.trouble(plan.round),
        }
    }

    /// Lets happen what the plan says, while there is load. One hub has ended then; several are well again.
    pub async fn strike(&mut self, plan: &Plan) -> Result<(), String> {
        match self {
            Self::One(one) => {
                let (setup, hub) = &mut **one;
                // The moment is the plan's; there is nothing to wait for.
                tokio::time::sleep(plan.end_after).await;
                match plan.end {
                    End::Kill => hub.kill()?.no_panic(),
                    End::Terminate => {
                        hub.terminate()?.no_panic()?;
                        setup.check()
                    }
                }
            }
            Self::Many(cluster) => cluster.strike(plan.round).await,
        }
    }

    /// After that, and when all callers are gone: nothing is under way any more, and everything can be asked.
    pub async fn recover(&mut self, plan: &Plan) -> Result<(), String> {
        match self {
            Self::One(one) => {
                let (setup, hub) = &mut **one;
                for pause in &plan.interrupted_starts {
                    setup.start_in_vain(plan.part_bytes, *pause).await?;
                }
                *hub = setup.start(plan.part_bytes)?;
                Ok(())
            }
            Self::Many(cluster) => cluster.settle().await,
        }
    }

    /// Kills the hub and starts it again; says whether it did, because several are left alone.
    pub fn kill_and_start(&mut self, plan: &Plan) -> Result<bool, String> {
        let Self::One(one) = self else { return Ok(false) };
        let (setup, hub) = &mut **one;
        hub.kill()?.no_panic()?;
        *hub = setup.start(plan.part_bytes)?;
        Ok(true)
    }

    /// Stops the hub in peace and starts it again, and checks its folder in between where that is asked for. Several are left
    /// alone.
    pub fn stop_and_start(&mut self, plan: &Plan, with_check: bool) -> Result<(), String> {
        let Self::One(one) = self else { return Ok(()) };
        let (setup, hub) = &mut **one;
        hub.terminate()?.no_panic()?;
        if with_check {
            setup.check()?;
        }
        *hub = setup.start(plan.part_bytes)?;
        Ok(())
    }

    /// Adds what was logged to what is wrong; a panic is wrong, too.
    pub async fn explain<T>(&self, outcome: Result<T, String>) -> Result<T, String> {
        let (log, sound) = match self {
            Self::One(one) => (one.1.log().text(), one.1.log().no_panic()),
            Self::Many(cluster) => (cluster.log().await, cluster.no_panic().await),
        };
        match (outcome, sound) {
            (Ok(done), Ok(())) => Ok(done),
            (Err(why), _) | (_, Err(why)) => Err(format!("{why}\nlog:\n{log}")),
        }
    }

    /// How much room the data take, where that is in a folder of its own.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::One(one) => folder_bytes(&one.0.data()),
            Self::Many(_) => 0,
        }
    }
}

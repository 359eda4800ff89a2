//! `prombus sub`: consumes a topic as a member of a group, and writes each event to stdout as one line.

mod consume;

use super::group_options::NewGroupOptions;
use super::start::{self, PositionArg, Start, Values};
use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::serve::signals::Signals;
use clap::Args;
use consume::Subscription;
use prombus_client::{GroupOptionsRequest, PullRequest};

/// Maximum number of events per pull: as many as a member may hold by default.
const MAX_BATCH: u64 = 1_000;
/// Default number of events per pull.
const DEFAULT_BATCH: u64 = 100;

const EXAMPLES: &str = "\
Examples:
  prombus sub process.state --group audit --from earliest >> audit.ndjson
  prombus sub process.state --group alarm --filter 'event.payload.cpu_pct > 80' | ./alarm
  prombus sub orders --group peek --max 10 --no-ack

A batch is acked after its lines are written, so a crash may repeat events but never loses one.
The options of a group are set when it is created, by its first sub; later ones may omit them.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SubArgs {
    /// Topic to consume
    topic: String,
    /// Consumer group; created if it does not exist
    #[arg(long, value_name = "GROUP")]
    group: String,
    /// Where a new group starts; TIME is epoch milliseconds, RFC 3339, a date (midnight UTC), or relative to now (-15m, -2d) [default: latest]
    #[arg(long, value_name = "earliest|latest|TIME|after:ID", value_parser = start::parse, allow_hyphen_values = true)]
    from: Option<PositionArg>,
    #[command(flatten)]
    values: Values,
    /// Stop after this many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// Do not ack: every event is redelivered when its lease expires
    #[arg(long)]
    no_ack: bool,
    /// Name of this member of the group
    #[arg(long, value_name = "NAME")]
    member: Option<String>,
    #[command(flatten)]
    options: NewGroupOptions,
    /// Number of events to pull, write and ack at a time
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BATCH,
        value_parser = clap::value_parser!(u64).range(1..=MAX_BATCH))]
    batch: u64,
    /// Print {"event", "ctx"}, with the attempt and the lease, instead of just the event
    #[arg(long)]
    with_ctx: bool,
}

impl SubArgs {
    fn request(self) -> Result<PullRequest, Failure> {
        if matches!(self.from, Some(PositionArg::Offset | PositionArg::At(Start::Offset(_)))) {
            let message = "--from: a new group cannot start at an offset; create it, then move it with \
                           prombus groups reset --to offset:N";
            return Err(Failure::Usage(message.into()));
        }
        let (mut ts, mut after_id) = (None, None);
        let from = self.values.choose(("--from", self.from), None)?.and_then(|place| match place {
            Start::Earliest => Some("earliest"),
            Start::Latest => Some("latest"),
            Start::Ts(at) => {
                ts = Some(at);
                Some("ts")
            }
            Start::AfterId(id) => {
                after_id = Some(id);
                Some("afterId")
            }
            Start::Offset(_) => None,
        });
        let options = GroupOptionsRequest { from: from.map(str::to_owned), ts, after_id, ..self.options.0 };
        Ok(PullRequest { member: self.member, ..options.into() })
    }
}

pub fn run(hub: &HubArgs, args: SubArgs) -> Result<(), Failure> {
    let subscription = Subscription {
        client: hub.client()?,
        topic: args.topic.clone(),
        group: args.group.clone(),
        batch: args.batch,
        max: args.max,
        acks: !args.no_ack,
        with_ctx: args.with_ctx,
        request: args.request()?,
    };
    hub::block_on(async {
        let mut signals = Signals::take()?;
        consume::consume(&subscription, &mut signals).await
    })
}

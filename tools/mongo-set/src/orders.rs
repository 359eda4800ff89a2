//! What is done with members on demand, until nobody needs them any more.

use super::member::Member;
use super::say;
use mongodb::bson::doc;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use rustix::process::Signal;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

/// A member that has not said by then what it is, is not there.
const STATE_WITHIN: Duration = Duration::from_millis(500);

/// Does what the input says, until it ends.
pub async fn obey(mut members: Vec<Member>) -> Result<(), String> {
    let mut asked = Vec::new();
    for member in &members {
        asked.push(ask(member).await?);
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.map_err(|error| error.to_string())? {
        let answer = match line.split_once(' ') {
            None if line == "states" => states(&asked).await,
            Some((verb, number)) => {
                let number = number.parse::<usize>().ok();
                match number.and_then(|number| members.get_mut(number)) {
                    Some(member) => order(member, verb),
                    None => Err(format!("there is no member {line:?}")),
                }
                .map(|()| "ok".to_owned())
            }
            None => Err(format!("there is no command {line:?}")),
        };
        say(&answer.unwrap_or_else(|why| format!("error: {why}"))).await?;
    }
    Ok(())
}

fn order(member: &mut Member, verb: &str) -> Result<(), String> {
    match verb {
        "kill" => member.kill(),
        "start" => member.start_again(),
        "stop" => member.signal(Signal::STOP),
        "continue" => member.signal(Signal::CONT),
        _ => Err(format!("there is no command {verb:?}")),
    }
}

async fn ask(member: &Member) -> Result<Database, String> {
    let mut options = ClientOptions::parse(member.url()).await.map_err(|error| error.to_string())?;
    options.server_selection_timeout = Some(STATE_WITHIN);
    Ok(Client::with_options(options).map_err(|error| error.to_string())?.database("admin"))
}

async fn states(members: &[Database]) -> Result<String, String> {
    let mut states = Vec::new();
    for admin in members {
        let hello = tokio::time::timeout(STATE_WITHIN, admin.run_command(doc! { "hello": 1 })).await;
        states.push(match hello {
            Ok(Ok(hello)) if hello.get_bool("isWritablePrimary").is_ok_and(|is| is) => "PRIMARY",
            Ok(Ok(hello)) if hello.get_bool("secondary").is_ok_and(|is| is) => "SECONDARY",
            Ok(Ok(_)) => "OTHER",
            _ => "DOWN",
        });
    }
    Ok(states.join(" "))
}

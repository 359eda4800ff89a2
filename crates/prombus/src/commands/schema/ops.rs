//! Whether an upcaster can be set.

use crate::failure::Failure;
use crate::hub;
use prombus_engine::schemas::upcast::{Hop, Upcaster};
use prombus_schema::lint::Fault;

const FORM: &str = r#"{"ops": [{"rename": ["from", "to"]}, {"set": {"path": "CEL"}}, {"remove": ["path"]}]}"#;

/// How many operations the text of an upcaster has, or what is wrong with it, by what the hub does with it.
pub fn check(text: &str) -> Result<usize, Fault> {
    let upcaster: Upcaster = serde_json::from_str(text).map_err(|error| {
        let message = format!("the upcaster is not of the form {FORM}: {error}");
        Fault { line: error.line().max(1), message }
    })?;
    hub::block_on(async {
        Hop::compile(&upcaster).await.map(drop).map_err(|error| Failure::Failed(error.to_string()))
    })
    .map_err(|failure| Fault { line: 1, message: failure.to_string() })?;
    Ok(upcaster.ops.len())
}

//! Decoding payloads.

use crate::ClientError;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// JSON kept as text, such as payloads of events, which is parsed on demand.
///
/// ```
/// use prombus_client::{EventRecord, ParseJson};
///
/// fn total(event: &EventRecord) -> Result<u64, prombus_client::ClientError> {
///     let order: serde_json::Value = event.payload.parse()?;
///     Ok(order["cents"].as_u64().unwrap_or_default())
/// }
/// ```
pub trait ParseJson {
    /// Parses the text.
    fn parse<T: DeserializeOwned>(&self) -> Result<T, ClientError>;
}

impl ParseJson for RawValue {
    fn parse<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(self.get()).map_err(ClientError::BadPayload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_what_is_asked_for_or_an_error_that_says_so() {
        let payload: Box<RawValue> = RawValue::from_string("[1,2]".into()).unwrap();
        assert_eq!(payload.parse::<Vec<u8>>().unwrap(), [1, 2]);
        assert!(matches!(payload.parse::<String>(), Err(ClientError::BadPayload(_))));
    }
}

//! What [`Copies`] promise, of a store that has no files.

use prombus_core::{Copies, CopyError};
use std::sync::Arc;

/// Whoever wants a copy is told what to do instead.
pub async fn a_store_without_files_says_what_to_do(copies: Arc<dyn Copies>) {
    match copies.hold().await {
        Err(CopyError::NoFiles(instead)) => assert!(!instead.is_empty(), "it says what to do"),
        Err(other) => panic!("a store without files says so, but: {other:?}"),
        Ok(copy) => panic!("it has files: {:?}", copy.files()),
    }
}

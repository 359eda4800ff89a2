//! The whole range of a query as NDJSON, in constant memory.

use crate::auth::Caller;
use crate::error::ApiError;
use crate::gateway::{App, Shared};
use crate::media::NDJSON;
use crate::pieces::{self, Pieces};
use axum::response::Response;
use prombus_engine::{Cost, QueryError, QueryPage, Reader};

/// How many events are read at once.
const PAGE_EVENTS: usize = 1_024;

/// A reader in small pages that counts failures of its filter.
pub(crate) struct CountedReader {
    reader: Reader,
    app: App,
    counted: u64,
}

impl CountedReader {
    pub fn new(reader: Reader, app: App) -> Self {
        Self { reader: reader.in_pages_of(pieces::CHUNK_BYTES), app, counted: 0 }
    }

    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    pub async fn next_page(&mut self, limit: usize) -> Result<QueryPage, QueryError> {
        let page = self.reader.next_page(limit).await;
        if let Some(filter) = &self.reader.query().filter {
            let failures = filter.failures();
            self.app.metrics.count_filter_errors(failures - self.counted);
            self.counted = failures;
        }
        page
    }
}

/// Everything that `reader` finds, or the first `limit` of it, a line each.
pub(crate) async fn lines(
    reader: CountedReader,
    limit: Option<usize>,
    by: (&Shared, Caller),
) -> Result<Response, ApiError> {
    pieces::answer(Export { reader, left: limit.unwrap_or(usize::MAX) }, NDJSON, by).await
}

struct Export {
    reader: CountedReader,
    left: usize,
}

impl Pieces for Export {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        let page = self.reader.next_page(self.left.min(PAGE_EVENTS)).await?;
        for event in &page.events {
            event.write_json(out);
            out.push(b'\n');
        }
        self.left -= page.events.len();
        Ok(self.left > 0 && page.next.is_some())
    }

    fn cost(&self) -> Cost {
        self.reader.reader().cost()
    }
}

//! Lists of documents: the query string as a [`Find`], and pages of the result.

use super::collections;
use super::document::{NO_STORE, min_offset, until_seen};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::gateway::App;
use crate::media::JSON;
use crate::memory::Reservation;
use crate::params::Params;
use crate::path::PathNames;
use crate::pieces::{self, CHUNK_BYTES, MAX_CHUNK_BYTES, Pieces};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::Response;
use prombus_core::collection::{Condition, Operand, SortKey, Test};
use prombus_core::{Document, FieldPath, Find, FoundDocuments};

/// How many documents a page has by default.
const DEFAULT_LIMIT: u64 = 100;
/// Maximum number of documents of a page.
const MAX_LIMIT: u64 = 1_000;
/// A page ends once its documents take this many bytes, even below its limit.
const MAX_PAGE_BYTES: usize = 4 << 20;
/// Maximum memory for sorting without an index.
const MAX_SORT_BYTES: usize = 256 << 20;
/// Maximum number of conditions of a query.
const MAX_CONDITIONS: usize = 100;
/// Maximum number of values of one `in`.
const MAX_VALUES: usize = 1_000;
/// Maximum number of fields to sort by.
const MAX_SORT_FIELDS: usize = 16;

/// `GET /v1/collections/{collection}/list`.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let name = names.collection()?;
    let mut params = Params::parse(query.as_deref())?;
    let at = min_offset(&mut params)?;
    let find = find_of(name, params)?;
    let hub = app.hub()?;
    if let Some(at) = at {
        until_seen(&app, name, at).await?;
    }
    if hub.collections().get(name).await?.is_none() {
        return Err(collections::missing(name));
    }
    let (offset, limit) = (find.offset, find.limit);
    // For the documents and for the first chunk that is written of them, together: whoever holds one must not wait for the other.
    let mut room = app.memory.reserve(MAX_PAGE_BYTES + MAX_CHUNK_BYTES).await?;
    let found = hub.collections().find(find).await?;
    let chunk = room.split_off(MAX_CHUNK_BYTES);
    let page = Page::new((offset, limit), room, found);
    let mut response = pieces::answer_in(chunk, page, JSON, (&app, caller)).await?;
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Ok(response)
}

/// A page on its way: what comes before its documents, those, and what comes after them.
struct Page {
    head: String,
    documents: std::vec::IntoIter<Document>,
    tail: String,
    /// What the documents take that are still to be written.
    room: Reservation,
}

impl Page {
    fn new((offset, limit): (usize, usize), mut room: Reservation, found: FoundDocuments) -> Self {
        let count = found.documents.len();
        room.resize(found.documents.iter().map(|document| document.body.len()).sum());
        let next = found.more.then(|| offset.saturating_add(count).to_string());
        Self {
            head: format!("{{\"offset\":{offset},\"limit\":{limit},\"count\":{count},\"items\":["),
            documents: found.documents.into_iter(),
            tail: format!("],\"next\":{}}}", next.as_deref().unwrap_or("null")),
            room,
        }
    }
}

impl Pieces for Page {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        out.extend_from_slice(std::mem::take(&mut self.head).as_bytes());
        while let Some(document) = self.documents.next() {
            document.write_json(out);
            self.room.resize(self.room.bytes().saturating_sub(document.body.len()));
            if self.documents.len() > 0 {
                out.push(b',');
            }
            if out.len() >= CHUNK_BYTES {
                return Ok(true);
            }
        }
        out.extend_from_slice(self.tail.as_bytes());
        Ok(false)
    }
}

/// The query given by the parameters. Those that are not paging parameters are conditions.
fn find_of(collection: &str, mut params: Params) -> Result<Find, ApiError> {
    let offset = params.number("offset")?.unwrap_or(0);
    let offset = usize::try_from(offset).map_err(|_| ApiError::bad_request("offset is too large"))?;
    let limit = params.number("limit")?.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 || limit > MAX_LIMIT {
        return Err(ApiError::bad_request(format!("limit must be between 1 and {MAX_LIMIT}, not {limit}")));
    }
    let sort = params.one("sort")?.map_or(Ok(Vec::new()), |text| sort_of(&text))?;
    let given = params.rest();
    if given.len() > MAX_CONDITIONS {
        return Err(ApiError::bad_request(format!("a query may have at most {MAX_CONDITIONS} conditions")));
    }
    let conditions = given.iter().map(|(name, value)| condition_of(name, value)).collect::<Result<_, _>>()?;
    Ok(Find {
        collection: collection.to_owned(),
        conditions,
        sort,
        offset,
        limit: limit as usize,
        max_bytes: MAX_PAGE_BYTES,
        sort_bytes: MAX_SORT_BYTES,
    })
}

/// `field`, or `field[op]`.
fn condition_of(name: &str, value: &str) -> Result<Condition, ApiError> {
    let operation = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
    if operation.is_none() && name.contains(['[', ']']) {
        let message = format!(
            "{name:?} has brackets but does not end with an operator; for a field of that name, add [eq]"
        );
        return Err(ApiError::bad_request(message));
    }
    let (field, operation) = operation.unwrap_or((name, "eq"));
    let operand = || Operand::text(value);
    let test = match operation {
        "eq" => Test::Eq(operand()),
        "ne" => Test::Ne(operand()),
        "gt" => Test::Gt(operand()),
        "gte" => Test::Gte(operand()),
        "lt" => Test::Lt(operand()),
        "lte" => Test::Lte(operand()),
        "in" => {
            let values = split(value, Backslashes::Unescape);
            if values.len() > MAX_VALUES {
                return Err(ApiError::bad_request(format!("in may have at most {MAX_VALUES} values")));
            }
            Test::In(values.iter().map(|value| Operand::text(value)).collect())
        }
        other => {
            return Err(ApiError::bad_request(format!(
                "{name}: unknown operator {other:?}; use eq, ne, gt, gte, lt, lte or in"
            )));
        }
    };
    Ok(Condition { field: FieldPath::parse(field)?, test })
}

fn sort_of(text: &str) -> Result<Vec<SortKey>, ApiError> {
    // What else is escaped in a field is for the path to read.
    let fields = split(text, Backslashes::Keep);
    if fields.len() > MAX_SORT_FIELDS {
        return Err(ApiError::bad_request(format!("sort may have at most {MAX_SORT_FIELDS} fields")));
    }
    let key = |field: &String| {
        let (field, descending) =
            field.strip_prefix('-').map_or((field.as_str(), false), |rest| (rest, true));
        Ok(SortKey { field: FieldPath::parse(field)?, descending })
    };
    fields.iter().map(key).collect()
}

/// What is done with a backslash before another one. One before a comma makes that part of the item and goes.
#[derive(Clone, Copy, PartialEq)]
enum Backslashes {
    Keep,
    Unescape,
}

/// The items of a list that commas separate.
fn split(text: &str, backslashes: Backslashes) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = items.len() - 1;
        match (c, chars.peek().copied()) {
            (',', _) => items.push(String::new()),
            ('\\', Some(',')) => items[last].extend(chars.next()),
            ('\\', Some('\\')) => {
                if backslashes == Backslashes::Keep {
                    items[last].push(c);
                }
                items[last].extend(chars.next());
            }
            (other, _) => items[last].push(other),
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use proptest::prelude::*;

    fn find(query: &str) -> Result<Find, ApiError> {
        find_of("c", Params::parse(Some(query))?)
    }

    fn condition(field: &str, test: Test) -> Condition {
        Condition { field: FieldPath::parse(field).unwrap(), test }
    }

    fn key(field: &str, descending: bool) -> SortKey {
        SortKey { field: FieldPath::parse(field).unwrap(), descending }
    }

    #[test]
    fn a_page_without_parameters() {
        let plain = Find {
            collection: "c".into(),
            conditions: Vec::new(),
            sort: Vec::new(),
            offset: 0,
            limit: 100,
            max_bytes: MAX_PAGE_BYTES,
            sort_bytes: MAX_SORT_BYTES,
        };
        assert_eq!(find("").unwrap(), plain);
    }

    #[test]
    fn every_operation() {
        let query =
            "status=alive&cpu_pct[gte]=80&a.b[gt]=1&c%5Blt%5D=2&d[lte]=x&e[ne]=null&f[eq]=&g[in]=a,b%5C,c,1";
        let text = Operand::text;
        let expected = [
            condition("status", Test::Eq(text("alive"))),
            condition("cpu_pct", Test::Gte(text("80"))),
            condition("a.b", Test::Gt(text("1"))),
            condition("c", Test::Lt(text("2"))),
            condition("d", Test::Lte(text("x"))),
            condition("e", Test::Ne(text("null"))),
            condition("f", Test::Eq(text(""))),
            condition("g", Test::In(vec![text("a"), text("b,c"), text("1")])),
        ];
        assert_eq!(find(query).unwrap().conditions, expected);
    }

    #[test]
    fn settings_of_the_page_can_be_fields_too() {
        let find =
            find("offset=5&limit=1000&sort=-_ts,a%5C,b,a%5C.b&offset[eq]=1&limit[eq]=2&sort[eq]=3").unwrap();
        assert_eq!((find.offset, find.limit), (5, 1_000));
        assert_eq!(find.sort, [key("_ts", true), key("a,b", false), key("a\\.b", false)]);
        let fields: Vec<&str> = find.conditions.iter().map(|condition| condition.field.as_str()).collect();
        assert_eq!(fields, ["offset", "limit", "sort"]);
    }

    #[test]
    fn a_field_may_come_twice_and_end_in_brackets() {
        let find = find("n[gt]=1&n[lt]=9&x[y][eq]=1&%5B[eq]=2&x[gt[eq]=3").unwrap();
        let fields: Vec<&str> = find.conditions.iter().map(|condition| condition.field.as_str()).collect();
        assert_eq!(fields, ["n", "n", "x[y]", "[", "x[gt"]);
    }

    #[test]
    fn bad_parameters() {
        for bad in [
            "limit=0",
            "limit=1001",
            "limit=-1",
            "limit=",
            "limit=1&limit=1",
            "offset=x",
            "offset=1.5",
            "sort=",
            "sort=a,,b",
            "sort=-",
            "sort=a&sort=b",
            "sort=a..b",
            "a[near]=1",
            "a[gt]%20=1",
            "a[gt=1",
            "a]=1",
            "a[]=1",
            "[eq]=1",
            "=1",
            "a.=1",
            "a%5Cx=1",
            "a=%ff",
        ] {
            assert_eq!(find(bad).unwrap_err().code().as_str(), "bad_request", "{bad}");
        }
        assert!(find(&vec!["a=1"; MAX_CONDITIONS].join("&")).is_ok());
        assert!(find(&vec!["a=1"; MAX_CONDITIONS + 1].join("&")).is_err());
        assert!(find(&format!("a[in]={}", vec!["1"; MAX_VALUES].join(","))).is_ok());
        assert!(find(&format!("a[in]={}", vec!["1"; MAX_VALUES + 1].join(","))).is_err());
        assert!(find(&format!("sort={}", vec!["a"; MAX_SORT_FIELDS + 1].join(","))).is_err());
    }

    #[test]
    fn lists() {
        let values = |text| split(text, Backslashes::Unescape);
        assert_eq!(values(""), [""]);
        assert_eq!(values("a,,b"), ["a", "", "b"]);
        assert_eq!(values(r"a\,b,c\d,e\\,f\"), ["a,b", r"c\d", r"e\", r"f\"]);
        assert_eq!(split(r"a\\\.b\,c,d", Backslashes::Keep), [r"a\\\.b,c", "d"]);
    }

    async fn text_of(mut page: Page) -> String {
        let mut out = Vec::new();
        while page.next(&mut out).await.unwrap() {}
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn a_page_says_where_it_goes_on() {
        let document = |n: u64| {
            let body = prombus_core::Json::from_value(&serde_json::json!({ "n": n }));
            Document::new(format!("k{n}"), 1, None, n, body)
        };
        let found = FoundDocuments { documents: vec![document(1), document(2)], more: true };
        let text = text_of(Page::new((4, 2), Memory::new(0).charge(0), found)).await;
        let items = r#"{"_key":"k1","_ts":1,"n":1},{"_key":"k2","_ts":2,"n":2}"#;
        assert_eq!(text, format!(r#"{{"offset":4,"limit":2,"count":2,"items":[{items}],"next":6}}"#));
        let none = text_of(Page::new((0, 100), Memory::new(0).charge(0), FoundDocuments::default())).await;
        assert_eq!(none, r#"{"offset":0,"limit":100,"count":0,"items":[],"next":null}"#);
    }

    proptest! {
        #[test]
        fn values_of_any_kind_can_be_listed(values in prop::collection::vec("[a,\\\\é]{0,5}", 1..5)) {
            let escape = |value: &String| value.replace('\\', "\\\\").replace(',', "\\,");
            let text = values.iter().map(escape).collect::<Vec<_>>().join(",");
            prop_assert_eq!(split(&text, Backslashes::Unescape), values);
        }

        #[test]
        fn no_query_makes_it_panic(query in "([a-z.,&=%5B\\[\\]\\\\-]|limit|sort|offset|eq|in){0,40}") {
            let _ = find(&query);
        }
    }
}

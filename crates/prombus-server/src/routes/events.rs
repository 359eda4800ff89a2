//! Reading a topic: pages, the whole range, and single events.

use super::export::{self, CountedReader};
use super::live::{self, Awaited, Source};
use crate::answers;
use crate::auth::{AccessRequest, Action, Caller};
use crate::error::ApiError;
use crate::gateway::{App, Shared};
use crate::media::{self, AnswerType, JSON};
use crate::params::{Params, parse_id};
use crate::path::PathNames;
use crate::pattern::{MAX_PATTERNS, Topics};
use crate::pieces::{self, Pieces};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use prombus_core::{Offset, TopicName};
use prombus_engine::groups::ReplayedLetters;
use prombus_engine::{
    Cost, Filter, From, Hub, MAX_PAGE_BYTES, MAX_SCANNED, Query, Reader, Resume, RoundsResume, Token,
    TopicsQuery,
};
use prombus_wire::spelling::is_other_spelling;
use serde_json::{Map, Value};
use uuid::Uuid;

/// How many events a page has by default.
const DEFAULT_PAGE: usize = 1_000;
/// Maximum number of events per page.
const MAX_PAGE: usize = 10_000;

/// A read request.
struct ReadCall {
    start: Start,
    limit: Option<usize>,
}

/// A new query, or the continuation of one.
enum Start {
    Query(Query),
    Cursor(String),
}

/// `GET /v1/topics/{topic}/events`.
pub(crate) async fn read(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let topic = names.topic()?;
    let answer = media::answer_type(&headers)?;
    let call = ReadCall::parse(Params::parse(query.as_deref())?).await?;
    if answer == AnswerType::Live {
        let source = follow(&app, topic, call, &headers).await?;
        return live::stream(source, app, caller);
    }
    let reader = call.start.reader(app.hub()?, &topic).await?;
    match answer {
        AnswerType::Lines => {
            let reader = CountedReader::new(reader.up_to_now(), app.clone());
            export::lines(reader, call.limit, (&app, caller)).await
        }
        AnswerType::Page | AnswerType::Live => {
            let limit = call.limit.unwrap_or(DEFAULT_PAGE);
            if limit > MAX_PAGE {
                return Err(ApiError::bad_request(format!("limit must be between 1 and {MAX_PAGE}")));
            }
            page(CountedReader::new(reader, app.clone()), limit, (&app, caller)).await
        }
    }
}

async fn follow(
    app: &App,
    topic: TopicName,
    call: ReadCall,
    headers: &HeaderMap,
) -> Result<Source, ApiError> {
    let (Start::Query(query), None) = (call.start, call.limit) else {
        return Err(ApiError::bad_request(
            "a stream takes neither limit nor cursor; it resumes by Last-Event-ID",
        ));
    };
    let (hub, resume) = (app.hub()?, last_event_id(headers).map(Resume::decode).transpose()?);
    let is_place = matches!(query.from, From::AfterId(_) | From::Offset(_));
    // A browser does not retry after a `404`.
    if hub.auto_create() && resume.is_none() && !is_place && hub.topic(&topic).await?.is_none() {
        return Ok(Source::Awaited(Box::new(Awaited::new(hub.clone(), topic, query))));
    }
    Ok(Source::Topic(Box::new(hub.follow(&topic, query, resume).await?)))
}

/// The event after which a stream resumes.
fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    let last = headers.get("last-event-id").map(|last| last.to_str().unwrap_or("?"));
    last.filter(|last| !last.is_empty())
}

/// `GET /v1/events`: follows all topics that match.
pub(crate) async fn follow_many(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    media::require_live(&headers)?;
    let query = topics_query(Params::parse(query.as_deref())?, &caller).await?;
    let resume = last_event_id(&headers).map(RoundsResume::decode).transpose()?;
    let follower = live::open(&app.memory, app.hub()?.follow_topics(query, resume)).await?;
    live::stream(Source::Topics(Box::new(follower)), app, caller)
}

/// What to follow. A named topic must be allowed; of those that match a pattern, others are omitted.
async fn topics_query(mut params: Params, caller: &Caller) -> Result<TopicsQuery, ApiError> {
    let texts = params.one("topics")?.unwrap_or_default();
    let topics: Vec<Topics> =
        texts.split(',').map(|text| Topics::parse(text.trim())).collect::<Result<_, _>>()?;
    if topics.len() > MAX_PATTERNS {
        return Err(ApiError::bad_request(format!("topics takes at most {MAX_PATTERNS} names and patterns")));
    }
    let access = |topic| AccessRequest::on(Action::Subscribe, topic);
    for named in &topics {
        match named {
            Topics::Named(topic) => caller.check(access(topic.as_str()))?,
            Topics::Matching(_) => caller.check_somewhere(Action::Subscribe)?,
        }
    }
    let from = parse_from(&mut params)?;
    if matches!(from, From::AfterId(_) | From::Offset(_)) {
        let message = "several topics can be followed from earliest, latest or ts; offsets and ids are positions in one topic";
        return Err(ApiError::bad_request(message));
    }
    let key = params.one("key")?;
    let filter = Filter::compile_any(params.one("filter")?.as_deref()).await?;
    let normalize = params.flag("normalize")?;
    params.done("topics, from, ts, key, filter, normalize")?;
    let caller = caller.clone();
    let matches = move |topic: &TopicName| {
        topics.iter().any(|some| some.include(topic))
            && caller.may(AccessRequest::on(Action::Subscribe, topic.as_str()))
    };
    Ok(TopicsQuery { matches: Box::new(matches), from, key, filter, normalize })
}

/// A page of the dead letters of a topic: a caller says where it starts, and `filter` what it is about. It says beside
/// its letters which of them were replayed. A topic that has none yet has an empty one, unless a cursor says otherwise.
pub(crate) async fn letters_page(
    (app, caller): (&App, Caller),
    (of, topic): (&TopicName, &TopicName),
    mut params: Params,
    filter: Option<String>,
) -> Result<Response, ApiError> {
    let limit = match params.number("limit")?.unwrap_or(DEFAULT_PAGE as u64) {
        limit if (1..=MAX_PAGE as u64).contains(&limit) => limit as usize,
        _ => return Err(ApiError::bad_request(format!("limit must be between 1 and {MAX_PAGE}"))),
    };
    let cursor = params.one("cursor")?;
    params.done("group, projection, filter, limit, cursor")?;
    let start = match (cursor, filter) {
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_request(
                "only limit may be combined with cursor, which contains the whole query",
            ));
        }
        (Some(cursor), None) => Start::Cursor(cursor),
        (None, filter) => Start::Query(Query {
            filter: Filter::compile_any(filter.as_deref()).await?,
            ..Query::of_all(From::Earliest)
        }),
    };
    let hub = app.hub()?;
    if matches!(start, Start::Query(_)) && hub.topic(topic).await?.is_none() {
        if hub.topic(of).await?.is_none() {
            return Err(ApiError::not_found(format!("topic {of} does not exist")));
        }
        let empty =
            format!("{{\"topic\":\"{topic}\",\"count\":0,\"events\":[],\"next\":null,\"replayed\":{{}}}}");
        return Ok(answers::json(StatusCode::OK, empty.into_bytes()));
    }
    let reader = start.reader(hub, topic).await?;
    let replayed = Some((hub.replayed_letters(reader.topic()).await?, Vec::new()));
    let page = Page { replayed, ..Page::new(CountedReader::new(reader, app.clone()), limit) };
    pieces::answer(page, JSON, (app, caller)).await
}

async fn page(reader: CountedReader, limit: usize, by: (&Shared, Caller)) -> Result<Response, ApiError> {
    pieces::answer(Page::new(reader, limit), JSON, by).await
}

/// A page of at most so many events, and of as many bytes and as much work as one page may be.
struct Page {
    reader: CountedReader,
    limit: usize,
    count: usize,
    bytes: usize,
    scanned: usize,
    begun: bool,
    /// Of dead letters: which were replayed, and the ids of those among them that the page has.
    replayed: Option<(ReplayedLetters, Vec<Uuid>)>,
}

impl Page {
    fn new(reader: CountedReader, limit: usize) -> Self {
        Self { reader, limit, count: 0, bytes: 0, scanned: 0, begun: false, replayed: None }
    }
}

impl Pieces for Page {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        let piece = self.reader.next_page(self.limit - self.count).await?;
        let reader = self.reader.reader();
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(b"{\"topic\":\"");
            out.extend_from_slice(reader.topic().name.as_str().as_bytes());
            out.extend_from_slice(b"\",\"events\":[");
        }
        for event in &piece.events {
            if self.count > 0 {
                out.push(b',');
            }
            event.write_json(out);
            self.count += 1;
            self.bytes += event.payload.len();
            if let Some((letters, ids)) = &mut self.replayed
                && letters.contains(event.offset)
            {
                ids.push(event.id);
            }
        }
        self.scanned += piece.scanned;
        let full = self.count == self.limit || self.bytes >= MAX_PAGE_BYTES || self.scanned >= MAX_SCANNED;
        let full = full || piece.is_slow;
        if piece.next.is_some() && !full {
            return Ok(true);
        }
        out.extend_from_slice(b"],\"count\":");
        out.extend_from_slice(itoa::Buffer::new().format(self.count).as_bytes());
        out.extend_from_slice(b",\"next\":");
        match piece.next {
            None => out.extend_from_slice(b"null"),
            Some(place) => {
                let token = Token::encode(reader.topic(), reader.query(), place);
                prombus_core::json::write_string(out, &token);
            }
        }
        if let Some((_, ids)) = &self.replayed {
            let ids: Map<String, Value> = ids.iter().map(|id| (id.to_string(), true.into())).collect();
            out.extend_from_slice(format!(",\"replayed\":{}", Value::Object(ids)).as_bytes());
        }
        out.push(b'}');
        Ok(false)
    }

    fn cost(&self) -> Cost {
        self.reader.reader().cost()
    }
}

/// The hub whose events are as the query of a request wants them.
pub(super) fn read_hub(app: &App, query: Option<&str>) -> Result<Hub, ApiError> {
    let mut params = Params::parse(query)?;
    let normalize = params.flag("normalize")?;
    params.done("normalize")?;
    let hub = app.hub()?;
    Ok(if normalize { hub.normalized() } else { hub.clone() })
}

/// `GET /v1/topics/{topic}/events/{id}`.
pub(crate) async fn by_id(
    State(app): State<App>,
    names: PathNames,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let hub = read_hub(&app, query.as_deref())?;
    let topic = names.topic()?;
    let id = parse_id("id", names.get("id"))?;
    match app.memory.make(async || Ok(hub.by_id(&topic, id).await?), answers::size).await? {
        Some(event) => Ok(answers::event(&event)),
        None => Err(ApiError::not_found(format!("topic {topic} has no event with id {id}"))),
    }
}

impl ReadCall {
    async fn parse(mut params: Params) -> Result<Self, ApiError> {
        let limit = match params.number("limit")? {
            Some(0) => return Err(ApiError::bad_request(format!("limit must be between 1 and {MAX_PAGE}"))),
            limit => limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        };
        if let Some(cursor) = params.one("cursor")? {
            params.done("limit (cursor contains the rest of the query)")?;
            return Ok(Self { start: Start::Cursor(cursor), limit });
        }
        let query = Query {
            from: parse_from(&mut params)?,
            partition: params.partition()?,
            key: params.one("key")?,
            to_ts: params.number("toTs")?,
            filter: Filter::compile_any(params.one("filter")?.as_deref()).await?,
            normalize: params.flag("normalize")?,
        };
        params.done("from, ts, afterId, offset, partition, key, toTs, limit, filter, normalize, cursor")?;
        Ok(Self { start: Start::Query(query), limit })
    }
}

/// The kind of start, one of which is named after a field with two spellings.
pub(super) fn kind_of(from: &str) -> &str {
    if is_other_spelling(from, "afterId") { "afterId" } else { from }
}

fn parse_from(params: &mut Params) -> Result<From, ApiError> {
    let from = params.one("from")?;
    let (ts, id, offset) = (params.number("ts")?, params.id("afterId")?, params.number("offset")?);
    let kind = kind_of(from.as_deref().unwrap_or("earliest"));
    for (name, given) in [("ts", ts.is_some()), ("afterId", id.is_some()), ("offset", offset.is_some())] {
        if given && name != kind {
            return Err(ApiError::bad_request(format!("{name} goes with from={name}")));
        }
    }
    match (kind, ts, id, offset) {
        ("earliest", ..) => Ok(From::Earliest),
        ("latest", ..) => Ok(From::Latest),
        ("ts", Some(ts), ..) => Ok(From::Ts(ts)),
        ("afterId", _, Some(id), _) => Ok(From::AfterId(id)),
        ("offset", .., Some(offset)) => Ok(From::Offset(Offset(offset))),
        ("ts" | "afterId" | "offset", ..) => {
            Err(ApiError::bad_request(format!("from={kind} needs the parameter {kind}")))
        }
        _ => Err(ApiError::bad_request(format!(
            "from must be earliest, latest, ts, afterId or offset, not {kind:?}"
        ))),
    }
}

impl Start {
    async fn reader(self, hub: &Hub, topic: &TopicName) -> Result<Reader, ApiError> {
        Ok(match self {
            Self::Query(query) => hub.read(topic, query).await?,
            Self::Cursor(cursor) => hub.resume(topic, &cursor).await?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(query: &str) -> Result<ReadCall, ApiError> {
        futures::executor::block_on(ReadCall::parse(Params::parse(Some(query))?))
    }

    fn from(query: &str) -> Option<From> {
        match call(query).ok()?.start {
            Start::Query(query) => Some(query.from),
            Start::Cursor(_) => None,
        }
    }

    #[test]
    fn where_to_start() {
        let id = "0198c0de-0000-7000-8000-000000000001";
        assert_eq!(from(""), Some(From::Earliest));
        assert_eq!(from("from=latest"), Some(From::Latest));
        assert_eq!(from("from=ts&ts=5"), Some(From::Ts(5)));
        assert_eq!(from("from=offset&offset=0"), Some(From::Offset(Offset(0))));
        assert_eq!(from(&format!("from=afterId&afterId={id}")), Some(From::AfterId(id.parse().unwrap())));
        for bad in [
            "from=",
            "from=x",
            "from=ts",
            "ts=5",
            "from=offset&ts=5&offset=1",
            "offset=1",
            "from=latest&ts=1",
        ] {
            assert_eq!(from(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_cursor_goes_with_a_limit_only() {
        assert!(matches!(call("cursor=x&limit=5"), Ok(ReadCall { start: Start::Cursor(_), limit: Some(5) })));
        assert!(call("cursor=x&key=y").is_err());
        assert!(call("cursor=x&cursor=y").is_err());
        assert!(call("limit=0").is_err());
    }

    proptest! {
        #[test]
        fn random_queries_never_panic(query in "((from|ts|afterId|offset|limit|cursor|key|toTs|filter|partition)=|&|%|[0-9a-z+]){0,20}") {
            let _ = call(&query);
        }
    }
}

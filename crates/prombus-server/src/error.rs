//! Every error as users see it: the only place that knows the status and code of an error.

use crate::answers;
use crate::auth::Reason;
use crate::routes::schemas;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prombus_core::collection::{BadCollectionName, BadField, MAX_INDEX_VALUE_BYTES};
use prombus_core::document::WriteError;
use prombus_core::topic::BadTopicName;
use prombus_core::{CommitError, CopyError, HomesError, JsonError, ReadError};
use prombus_engine::collections::CollectionError;
use prombus_engine::commits::CommitRefused;
use prombus_engine::groups::{GroupError, LeaseToken};
use prombus_engine::projections::{MAX_DEFINITION_BYTES, ProjectionError};
use prombus_engine::replays::ReplaysError;
use prombus_engine::schemas::upcast::UpcastError;
use prombus_engine::schemas::{SchemasError, ViolatedPlace};
use prombus_engine::{
    BackupError, BadFilter, BusError, CleanError, FilterError, QueryError, TimeTravelError,
};
use prombus_wire::{ArrayError, ErrorBody, ErrorCode};
use serde_json::{Map, Value, json};
use std::time::Duration;
use uuid::Uuid;

/// Default for `Retry-After`, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
/// A store without room as its operator sees it, and what to do.
const DISK_FULL: &str = "the disk is full, or a quota or file size limit is reached; free some space, and publishing resumes automatically";
/// The detail with the delay in milliseconds.
const RETRY_AFTER_MS: &str = "retry_after_ms";

/// An error as it is sent to the client.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: ErrorCode,
    message: String,
    details: Map<String, Value>,
    /// Whether it may be no error on another hub.
    elsewhere: Elsewhere,
}

/// Whether an error is one of this hub only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Elsewhere {
    #[default]
    Same,
    /// The topic is not, or no more, at home on this hub, and the request had no effect.
    Moved,
    /// The hubs have to greet each other again, and the request had no effect.
    Stale,
}

/// Kept with an answer: the request had no effect because its topic is at home elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Moved(pub Box<ApiError>);

impl ApiError {
    /// An error with that code.
    pub fn with_code(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(code, message)
    }

    /// The status and the reason, if the error is about the caller.
    pub fn refusal(&self) -> Option<(u16, &str)> {
        is_refusal(self.code).then_some((self.status.as_u16(), self.message.as_str()))
    }

    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, code, message: message.into(), details: Map::new(), elsewhere: Elsewhere::Same }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    pub fn bad_json(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadJson, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    pub fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::MethodNotAllowed, message)
    }

    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TooLarge, message)
    }

    /// `name` has more entries than a request may.
    pub fn too_many(name: &str, limit: usize) -> Self {
        Self::too_large(format!("{name} takes at most {limit} at a time")).with("limit", limit)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message)
    }

    /// Two hubs that do not know each other any more.
    pub fn stale() -> Self {
        let error = Self::unavailable("a hub that this is for was started anew; try again");
        Self { elsewhere: Elsewhere::Stale, ..error }
    }

    /// What another hub has answered.
    pub fn from_answer(status: StatusCode, body: &[u8]) -> Self {
        match serde_json::from_slice::<ErrorBody>(body) {
            Ok(body) => Self::from_told((status.as_u16(), body)),
            Err(_) => Self::unavailable(format!("the home of this answered {status}, and no reason")),
        }
    }

    /// What another hub is told of it, and tells on.
    pub fn told(self) -> (u16, ErrorBody) {
        let Self { status, code, message, details, .. } = self;
        (status.as_u16(), ErrorBody { error: code, message, details })
    }

    /// What another hub has told.
    pub fn from_told((status, body): (u16, ErrorBody)) -> Self {
        let ErrorBody { error, message, details } = body;
        let told = Self::new(error, message);
        Self { status: StatusCode::from_u16(status).unwrap_or(told.status), details, ..told }
    }

    /// Whether it may be over in a moment.
    pub fn is_passing(&self) -> bool {
        self.code == ErrorCode::Unavailable
    }

    pub fn is_stale(&self) -> bool {
        self.elsewhere == Elsewhere::Stale
    }

    /// The hub that was asked does not have the topic, or cannot find out.
    fn of_home(error: &HomesError, message: String) -> Self {
        match error {
            HomesError::Unavailable(_) => Self::unavailable(message),
            HomesError::Elsewhere { .. } | HomesError::Lost(_) => Self::unavailable(message).moved(),
        }
    }

    /// Marks the error as that of a hub which is not the home of the topic, so that nothing was done.
    #[must_use]
    pub fn moved(self) -> Self {
        Self { elsewhere: Elsewhere::Moved, ..self }
    }

    pub fn is_moved(&self) -> bool {
        self.elsewhere == Elsewhere::Moved
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// The caller is not authenticated.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unauthorized, message)
    }

    /// The caller lacks a right.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Forbidden, message)
    }

    /// The rate limit is exceeded; the request may be retried after `wait`.
    pub fn rate_limited(message: impl Into<String>, wait: Duration) -> Self {
        let ms = wait.as_millis() as u64 + 1;
        Self::new(ErrorCode::RateLimited, message).with(RETRY_AFTER_MS, ms)
    }

    /// A lease in a commit that has expired or is invalid.
    pub fn lease_expired(lease: &str) -> Self {
        let message = match not_a_lease(lease) {
            Some(why) => format!("{why}; nothing was committed"),
            None => "the lease has expired, was already settled, or was superseded; nothing was committed"
                .to_owned(),
        };
        Self::new(ErrorCode::LeaseExpired, message).with("lease", lease)
    }

    /// The requested operation is already running; there is no separate code for that.
    pub fn under_way(message: impl Into<String>) -> Self {
        Self { status: StatusCode::CONFLICT, ..Self::bad_request(message) }
    }

    /// The content type is not supported by the route.
    pub fn unsupported_type(message: impl Into<String>) -> Self {
        Self { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, ..Self::bad_request(message) }
    }

    /// A unique index already has these values, in a document that the caller may not read.
    pub fn not_unique(collection: &str, key: &str, fields: &[String]) -> Self {
        let fields = fields.join(", ");
        let message = format!(
            "document {key:?} of collection {collection} has the same {fields} as another one, and they must be unique"
        );
        Self::new(ErrorCode::VersionConflict, message)
    }

    /// The client accepts no type that the route can produce.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_ACCEPTABLE, ..Self::bad_request(message) }
    }

    /// The client was too slow.
    pub fn timed_out(message: impl Into<String>) -> Self {
        Self { status: StatusCode::REQUEST_TIMEOUT, ..Self::bad_request(message) }
    }

    /// Adds a detail to the error.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Marks the error as that of one event of an array.
    #[must_use]
    pub fn at_index(self, index: Option<usize>) -> Self {
        match index {
            Some(index) => self.with("index", index),
            None => self,
        }
    }

    /// The error as that of one line of many, of which `count` events are in: whatever it is, that line is
    /// what the client has to mend.
    #[must_use]
    pub fn of_line(self, count: u64, line: u64) -> Self {
        let message = format!("line {line}: {}", self.message);
        Self { status: StatusCode::BAD_REQUEST, message, ..self }.after_lines(count, line)
    }

    /// The error as something that ended a stream of lines at `line`, when `count` events were in.
    #[must_use]
    pub fn after_lines(self, count: u64, line: u64) -> Self {
        self.with("count", count).with("line", line)
    }

    /// The body of the answer.
    pub fn to_json(&self) -> String {
        let (error, message, details) = (self.code, self.message.clone(), self.details.clone());
        serde_json::to_string(&ErrorBody { error, message, details }).unwrap_or_default()
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn code(&self) -> ErrorCode {
        self.code
    }

    pub fn details(&self) -> &Map<String, Value> {
        &self.details
    }

    pub fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let moved = self.is_moved().then(|| Moved(Box::new(self.clone())));
        let Self { status, code, message, details, .. } = self;
        if code == ErrorCode::Internal {
            tracing::error!(message, "a request failed");
        }
        let refusal = is_refusal(code).then(|| Reason(message.clone()));
        let wait = details.get(RETRY_AFTER_MS).and_then(Value::as_u64).map(|ms| ms.div_ceil(1000).into());
        let mut response = answers::json_of(status, &ErrorBody { error: code, message, details });
        let headers = response.headers_mut();
        match code {
            ErrorCode::Unavailable | ErrorCode::RateLimited => {
                headers.insert(header::RETRY_AFTER, wait.unwrap_or(RETRY_AFTER));
            }
            ErrorCode::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        if let Some(reason) = refusal {
            response.extensions_mut().insert(reason);
        }
        if let Some(moved) = moved {
            response.extensions_mut().insert(moved);
        }
        response
    }
}

/// Whether an error with this code is about the caller.
fn is_refusal(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Unauthorized | ErrorCode::Forbidden)
}

/// What is wrong with a text that is not a lease. No lease can be read as an id.
pub(crate) fn not_a_lease(text: &str) -> Option<&'static str> {
    if Uuid::try_parse(text).is_ok() {
        return Some(
            "this looks like the id of an event, not a lease: send the ctx.lease of the delivery instead",
        );
    }
    let is_none = text.parse::<LeaseToken>().is_err() && !is_early_lease(text);
    is_none.then_some("this is not a lease: send the ctx.lease of the delivery, unchanged")
}

/// Whether a text looks like a lease of an earlier build: hexadecimal digits without separators. All of those have expired.
fn is_early_lease(text: &str) -> bool {
    (17..=32).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Text that is not JSON is `bad_json`; JSON of the wrong form is `bad_request`.
impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        if error.is_data() {
            Self::bad_request(format!("the body does not have the expected form: {error}"))
        } else {
            Self::bad_json(format!("the body is not valid JSON: {error}"))
        }
    }
}

impl From<JsonError> for ApiError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Syntax(error) => error.into(),
            JsonError::TooDeep => Self::bad_request(error.to_string()),
        }
    }
}

impl From<ArrayError<Self>> for ApiError {
    fn from(error: ArrayError<Self>) -> Self {
        match error {
            ArrayError::Json { index, error } => Self::from(error).at_index(index),
            ArrayError::Refused { index, error } => error.at_index(Some(index)),
        }
    }
}

impl From<BadTopicName> for ApiError {
    fn from(error: BadTopicName) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<BadCollectionName> for ApiError {
    fn from(error: BadCollectionName) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<BadField> for ApiError {
    fn from(error: BadField) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<BadFilter> for ApiError {
    fn from(error: BadFilter) -> Self {
        Self::new(ErrorCode::BadFilter, error.to_string())
            .with("line", error.line)
            .with("column", error.column)
    }
}

impl From<FilterError> for ApiError {
    fn from(error: FilterError) -> Self {
        match error {
            FilterError::Bad(bad) => bad.into(),
            FilterError::Unavailable(error) => error.into(),
        }
    }
}

impl From<BackupError> for ApiError {
    fn from(error: BackupError) -> Self {
        let message = error.to_string();
        match error {
            BackupError::Copy(CopyError::NotFound(_)) => Self::not_found(message),
            BackupError::Copy(CopyError::NoFiles(_) | CopyError::BeyondEnd { .. }) => {
                Self::bad_request(message)
            }
            BackupError::Copy(CopyError::Unavailable(_)) | BackupError::TooMany => Self::unavailable(message),
            BackupError::Copy(CopyError::Unreadable { .. }) => Self::internal(message),
            BackupError::Ended(_) | BackupError::GaveWay(_) => Self::new(ErrorCode::Gone, message),
            BackupError::OtherContent { .. } => Self::new(ErrorCode::ExpectationFailed, message),
        }
    }
}

impl From<UpcastError> for ApiError {
    fn from(error: UpcastError) -> Self {
        let message = error.to_string();
        match error {
            UpcastError::Bad(_) => Self::bad_request(message),
            UpcastError::BadExpression { place, error } => Self::new(ErrorCode::BadFilter, message)
                .with("place", place)
                .with("line", error.line)
                .with("column", error.column),
            UpcastError::Unavailable(error) => error.into(),
        }
    }
}

impl From<SchemasError> for ApiError {
    fn from(error: SchemasError) -> Self {
        let message = error.to_string();
        match error {
            SchemasError::NotFound(_) | SchemasError::NoUpcaster { .. } => Self::not_found(message),
            SchemasError::BadUpcaster(error) => error.into(),
            SchemasError::NoVersion { latest, .. } => Self::not_found(message).with("latest", latest),
            SchemasError::Bad(_) | SchemasError::BadSchema(_) => Self::bad_request(message),
            SchemasError::VersionConflict { latest, .. } => {
                Self::new(ErrorCode::VersionConflict, message).with("latest", latest)
            }
            SchemasError::Incompatible { version, violations, .. } => {
                Self::new(ErrorCode::Incompatible, message)
                    .with("version", version)
                    .with("violations", json!(schemas::shown_violations(violations)))
            }
            SchemasError::Read(error) => error.into(),
            SchemasError::Bus(error) => error.into(),
        }
    }
}

/// The caller adds the index of the event, since only it knows whether there was an array.
impl From<BusError> for ApiError {
    fn from(error: BusError) -> Self {
        let message = error.to_string();
        match error {
            BusError::Commit(error) => error.into(),
            BusError::ReservedTopic(_) => Self::new(ErrorCode::Forbidden, message),
            BusError::EventTooLarge { limit, .. } | BusError::CommitTooLarge { limit, .. } => {
                Self::too_large(message).with("limit", limit)
            }
            BusError::SchemaViolation(violation) => {
                let place = |ViolatedPlace { path, message }| json!({ "path": path, "message": message });
                let places: Vec<Value> = violation.places.into_iter().map(place).collect();
                Self::new(ErrorCode::SchemaViolation, message).with("violations", places)
            }
            BusError::BadConfig(_)
            | BusError::BadEvent { .. }
            | BusError::KeyAndPartition { .. }
            | BusError::ExpectWithoutKey { .. }
            | BusError::FutureTs { .. } => Self::bad_request(message),
        }
    }
}

impl From<CommitError> for ApiError {
    fn from(error: CommitError) -> Self {
        let message = error.to_string();
        match error {
            CommitError::TopicNotFound(_) | CommitError::CollectionNotFound(_) => Self::not_found(message),
            CommitError::ChangefeedsNotFound(_) => Self::not_found(message),
            CommitError::BadWrite { error: WriteError::ChangeTooLarge { limit, .. }, .. }
            | CommitError::TooManyTopics { limit }
            | CommitError::TooManyCollections { limit }
            | CommitError::TooManyReaderPartitions { limit } => Self::too_large(message).with("limit", limit),
            CommitError::PartitionsShrink { .. }
            | CommitError::TooManyGrowths { .. }
            | CommitError::NoSuchPartition { .. }
            | CommitError::NotDuplicate { .. }
            | CommitError::BadWrite { .. } => Self::bad_request(message),
            CommitError::IdConflict { id, .. } => {
                Self::new(ErrorCode::IdConflict, message).with("id", id.to_string())
            }
            CommitError::ExpectationFailed { actual, .. } => Self::new(ErrorCode::ExpectationFailed, message)
                .with("actual", json!({ "last_id": actual.map(|id| id.to_string()) })),
            CommitError::VersionConflict { collection, key, actual } => {
                Self::new(ErrorCode::VersionConflict, message)
                    .with("collection", collection)
                    .with("key", key)
                    .with("actual", actual)
            }
            CommitError::CursorMoved { actual, .. } => {
                Self::new(ErrorCode::VersionConflict, message).with("actual", actual)
            }
            CommitError::NotUnique { other, .. } => {
                Self::new(ErrorCode::VersionConflict, message).with("other", other)
            }
            CommitError::IndexValueTooLong { collection, key, fields, bytes, .. } => Self::too_large(message)
                .with("collection", collection)
                .with("key", key)
                .with("fields", fields)
                .with("bytes", bytes)
                .with("limit", MAX_INDEX_VALUE_BYTES),
            CommitError::NotOwner { collection, owner } => {
                Self::new(ErrorCode::NotOwner, message).with("collection", collection).with("owner", owner)
            }
            CommitError::TooLarge { bytes, limit } => {
                Self::too_large(message).with("counted", bytes).with("limit", limit)
            }
            CommitError::NoRoom => Self::new(ErrorCode::DiskFull, DISK_FULL),
            CommitError::TopicExists(_)
            | CommitError::TopicChanged(_)
            | CommitError::Outdated(_)
            | CommitError::CollectionChanged(_)
            | CommitError::TopicReplaced(_)
            | CommitError::Busy
            | CommitError::Unavailable(_) => Self::unavailable(message),
            CommitError::EpochOver { .. } => Self::unavailable(message).moved(),
            CommitError::Unknown(_) => Self::unavailable(message).with("outcome", "unknown"),
        }
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        let message = error.to_string();
        match error {
            ReadError::TopicNotFound(_) => Self::not_found(message),
            ReadError::TopicGone(_) => Self::new(ErrorCode::Gone, message),
            ReadError::NoSuchPartition { .. } | ReadError::BadFind(_) => Self::bad_request(message),
            ReadError::Gone { first } => Self::new(ErrorCode::Gone, message).with("first", first.0),
            ReadError::NoUpcaster { from, .. } => {
                Self::new(ErrorCode::Incompatible, message).with("version", from)
            }
            ReadError::NotRaised { partition, offset, id, .. } => {
                Self::new(ErrorCode::SchemaViolation, message)
                    .with("partition", partition.0)
                    .with("offset", offset.0)
                    .with("id", id.to_string())
            }
            ReadError::Corrupt(_) => Self::internal(message),
            ReadError::Unavailable(_) => Self::unavailable(message),
        }
    }
}

impl From<CleanError> for ApiError {
    fn from(error: CleanError) -> Self {
        let message = error.to_string();
        match error {
            CleanError::Read(error) => error.into(),
            CleanError::Bus(error) => error.into(),
            CleanError::BeyondEnd { next, .. } => Self::bad_request(message).with("next", next.0),
            CleanError::NoSnapshots(_) => Self::bad_request(message),
            CleanError::Home(error) => Self::of_home(&error, message),
            CleanError::Closing => Self::unavailable(message),
            CleanError::Failed(_) => Self::internal(message),
        }
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        let message = error.to_string();
        match error {
            QueryError::Read(error) => error.into(),
            QueryError::PartitionNeeded { partitions } => {
                Self::bad_request(message).with("partitions", partitions)
            }
            QueryError::BadToken => Self::bad_request(message),
            QueryError::UnknownId(_) => Self::not_found(message),
            QueryError::Gone { partition, first, .. }
            | QueryError::IdGone { kept: Some((partition, first)), .. } => {
                Self::new(ErrorCode::Gone, message).with("partition", partition.0).with("first", first.0)
            }
            QueryError::IdGone { kept: None, .. } => Self::new(ErrorCode::Gone, message),
            QueryError::TooManyPartitions { .. } => Self::too_large(message),
        }
    }
}

impl From<GroupError> for ApiError {
    fn from(error: GroupError) -> Self {
        let message = error.to_string();
        match error {
            GroupError::NotFound { .. } => Self::not_found(message),
            GroupError::BadOption(_) => Self::bad_request(message),
            GroupError::BadFilter(error) => error.into(),
            GroupError::Options { actual } => {
                Self::new(ErrorCode::GroupOptions, message).with("actual", actual)
            }
            GroupError::TooManyMembers { limit } => Self::too_large(message).with("limit", limit),
            GroupError::Query(error) => error.into(),
            GroupError::Bus(error) => error.into(),
            GroupError::Home(error) => Self::of_home(&error, message),
            GroupError::Failed(_) => Self::unavailable(message),
        }
    }
}

impl From<CollectionError> for ApiError {
    fn from(error: CollectionError) -> Self {
        match error {
            CollectionError::BadName(error) => error.into(),
            CollectionError::Bad(message) => Self::bad_request(message),
            CollectionError::NotFound(_) => Self::not_found(error.to_string()),
            CollectionError::OfProjection { ref collection, ref projection } => {
                Self::new(ErrorCode::NotOwner, error.to_string())
                    .with("collection", collection.as_str())
                    .with("owner", projection.as_str())
            }
            CollectionError::Read(error) => error.into(),
            CollectionError::Bus(error) => error.into(),
        }
    }
}

impl From<ProjectionError> for ApiError {
    fn from(error: ProjectionError) -> Self {
        let message = error.to_string();
        match error {
            ProjectionError::NotFound(_) => Self::not_found(message),
            ProjectionError::Bad(_) => Self::bad_request(message),
            ProjectionError::TooLarge(_) => Self::too_large(message).with("limit", MAX_DEFINITION_BYTES),
            ProjectionError::BadExpression { place, error } => Self::new(ErrorCode::BadFilter, message)
                .with("place", place)
                .with("line", error.line)
                .with("column", error.column),
            ProjectionError::NotOwner { collection, owner } => {
                Self::new(ErrorCode::NotOwner, message).with("collection", collection).with("owner", owner)
            }
            // Not `410`: the projection is there, and can be rebuilt from what is kept.
            ProjectionError::Incomplete { partition, first } => {
                let gone = Self { status: StatusCode::CONFLICT, ..Self::new(ErrorCode::Gone, message) };
                gone.with("partition", partition.0).with("first", first.0)
            }
            // Not `unavailable`: a client that retries automatically would start one rebuild after the other.
            ProjectionError::Rebuilding(_) => Self::under_way(message),
            ProjectionError::Read(error) => error.into(),
            ProjectionError::Bus(error) => error.into(),
        }
    }
}

impl From<ReplaysError> for ApiError {
    fn from(error: ReplaysError) -> Self {
        let message = error.to_string();
        match error {
            ReplaysError::NotFound(_) => Self::not_found(message),
            ReplaysError::NameUsed { .. } => Self::new(ErrorCode::IdConflict, message),
            ReplaysError::WrongState { .. } => Self::under_way(message),
            ReplaysError::TooMany => Self::too_large(message),
            ReplaysError::Bad(_) => Self::bad_request(message),
            ReplaysError::Filter(error) => error.into(),
            ReplaysError::Map(error) => error.into(),
            ReplaysError::Query(error) => error.into(),
            ReplaysError::Read(error) => error.into(),
            ReplaysError::Bus(error) => error.into(),
        }
    }
}

impl From<TimeTravelError> for ApiError {
    fn from(error: TimeTravelError) -> Self {
        let message = error.to_string();
        match error {
            TimeTravelError::Gone { horizon_ts, .. } => {
                Self::new(ErrorCode::Gone, message).with("horizon_ts", horizon_ts)
            }
            TimeTravelError::Bad(_) => Self::bad_request(message),
            TimeTravelError::TooLarge => Self::too_large(message),
            TimeTravelError::Read(error) => error.into(),
            TimeTravelError::Projection(error) => error.into(),
        }
    }
}

impl From<CommitRefused> for ApiError {
    fn from(error: CommitRefused) -> Self {
        match error {
            CommitRefused::Bad(message) => Self::bad_request(message),
            CommitRefused::LeaseExpired(lease) => Self::lease_expired(&lease.to_string()),
            CommitRefused::NotAllowed => Self::forbidden(error.to_string()),
            CommitRefused::IdConflict(ref id) => {
                Self::new(ErrorCode::IdConflict, error.to_string()).with("commit_id", id.as_str())
            }
            CommitRefused::Group(error) => error.into(),
            CommitRefused::Read(error) => error.into(),
            CommitRefused::Bus(error) => {
                let index = error.index();
                Self::from(error).at_index(index)
            }
        }
    }
}

#[cfg(test)]
mod tests;

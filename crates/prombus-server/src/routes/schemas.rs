//! Schemas: register, check, list and show; and upcasters.

use crate::answers::json_of;
use crate::auth::Caller;
use crate::body::json_body;
use crate::error::ApiError;
use crate::gateway::App;
use crate::media::JSON;
use crate::params::NoParams;
use crate::path::PathNames;
use crate::pieces::{self, Array};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use prombus_core::{Json, TopicName, TopicState};
use prombus_engine::schemas::upcast::Upcaster;
use prombus_engine::schemas::{Head, NewSchema, Rule, SchemasError, StoredUpcaster, UnknownWord, Violation};
use prombus_wire::{
    SchemaAnswer, SchemaChecked, SchemaRegistered, SchemaRequest, SchemaVersion, SchemaViolation,
    TopicSchemas, UpcasterAnswer, parse_object,
};

/// Why a schema does not follow another one, as it is answered.
pub(crate) fn shown_violations(violations: Vec<Violation>) -> Vec<SchemaViolation> {
    let shown = |Violation { path, rule, message, counterexample }| SchemaViolation {
        path,
        rule,
        message,
        counterexample,
    };
    violations.into_iter().map(shown).collect()
}

/// What there is for a topic, as it is answered.
fn shown(topic: &TopicName, head: &Head) -> TopicSchemas {
    TopicSchemas {
        topic: topic.to_string(),
        versions: (head.versions.iter())
            .map(|known| SchemaVersion { version: known.version, registered_ts: known.registered_ts })
            .collect(),
        upcasters: head.upcasters.keys().copied().collect(),
    }
}

fn parse(body: &Bytes) -> Result<NewSchema, ApiError> {
    let SchemaRequest { version, compat, policy, schema } = parse_object(body)?;
    let bad = |field: &str, error: UnknownWord| ApiError::bad_request(format!("{field}: {error}"));
    let demand = compat.map(|word| word.parse()).transpose().map_err(|error| bad("compat", error))?;
    let policy = policy.map(|word| word.parse()).transpose().map_err(|error| bad("policy", error))?;
    let rule = Rule { demand: demand.unwrap_or_default(), policy: policy.unwrap_or_default() };
    Ok(NewSchema { version, rule, compare_from: 0, text: Json::from_raw(schema, body)? })
}

/// `POST /v1/schemas/{topic}`.
pub(crate) async fn register(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let (topic, new) = (names.topic()?, parse(&body)?);
    let may_copy = |copies: &TopicName| caller.check_copies(&topic, copies);
    let registered = app.hub()?.schemas().register_if(&topic, &new, may_copy).await?;
    let status = if registered.made { StatusCode::CREATED } else { StatusCode::OK };
    let answer = SchemaRegistered { topic: topic.to_string(), version: registered.version };
    Ok(json_of(status, &answer))
}

/// `POST /v1/schemas/{topic}/check`.
pub(crate) async fn check(
    State(app): State<App>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let (topic, new) = (names.topic()?, parse(&body)?);
    let violations = app.hub()?.schemas().check(&topic, &new).await?;
    let answer =
        SchemaChecked { compatible: violations.is_empty(), violations: shown_violations(violations) };
    Ok(json_of(StatusCode::OK, &answer))
}

/// `GET /v1/schemas`.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    _: NoParams,
) -> Result<Response, ApiError> {
    let hub = app.hub()?.clone();
    let mut topics = hub.topics().await?;
    topics.retain(|topic| caller.may_see(&topic.name));
    // Each has all its versions: together that may be far more than is worth holding.
    let shown = futures::stream::iter(topics).filter_map(move |TopicState { name, .. }| {
        let hub = hub.clone();
        async move {
            match hub.schemas().head(&name).await {
                Ok(head) => Some(serde_json::to_vec(&shown(&name, &head)).map_err(ApiError::from)),
                Err(SchemasError::NotFound(_)) => None,
                Err(error) => Some(Err(error.into())),
            }
        }
    });
    pieces::answer(Array::new("schemas", shown.boxed()), JSON, (&app, caller)).await
}

/// `GET /v1/schemas/{topic}`.
pub(crate) async fn show(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let topic = names.topic()?;
    let head = app.hub()?.schemas().head(&topic).await?;
    Ok(json_of(StatusCode::OK, &shown(&topic, &head)))
}

/// The version of the path; `None` for the latest.
fn version(names: &PathNames) -> Result<Option<u32>, ApiError> {
    match names.get("version") {
        "latest" => Ok(None),
        text => {
            let bad =
                |_| ApiError::bad_request(format!("{text:?} is not a version: use a number, or `latest`"));
            text.parse().map(Some).map_err(bad)
        }
    }
}

/// `GET /v1/schemas/{topic}/versions/{version}`.
pub(crate) async fn show_version(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let topic = names.topic()?;
    let found = app.hub()?.schemas().version(&topic, version(&names)?).await?;
    let answer = SchemaAnswer {
        topic: topic.to_string(),
        version: found.head.version,
        registered_ts: found.head.registered_ts,
        schema: serde_json::from_slice(found.text.as_bytes())?,
    };
    Ok(json_of(StatusCode::OK, &answer))
}

/// `GET /v1/schemas/{topic}/versions/{version}/example`.
pub(crate) async fn example(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let topic = names.topic()?;
    let made = app.hub()?.schemas().example(&topic, version(&names)?).await?;
    let none =
        || ApiError::not_found(format!("no document was found that this schema of topic {topic} takes"));
    Ok(json_of(StatusCode::OK, &made.ok_or_else(none)?))
}

/// The version of the path that an upcaster starts from.
fn from(names: &PathNames) -> Result<u32, ApiError> {
    let text = names.get("from");
    text.parse().map_err(|_| ApiError::bad_request(format!("{text:?} is not a version: use a number")))
}

/// `PUT /v1/schemas/{topic}/upcasters/{from}`.
pub(crate) async fn put_upcaster(
    State(app): State<App>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let (topic, from, upcaster) = (names.topic()?, from(&names)?, parse_object::<Upcaster>(&body)?);
    let schemas = app.hub()?.schemas();
    let status = match schemas.put_upcaster(&topic, from, &upcaster).await? {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok(json_of(status, &shown_upcaster(&topic, schemas.upcaster(&topic, from).await?)?))
}

/// `GET /v1/schemas/{topic}/upcasters/{from}`.
pub(crate) async fn show_upcaster(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let topic = names.topic()?;
    let upcaster = app.hub()?.schemas().upcaster(&topic, from(&names)?).await?;
    Ok(json_of(StatusCode::OK, &shown_upcaster(&topic, upcaster)?))
}

/// `DELETE /v1/schemas/{topic}/upcasters/{from}`.
pub(crate) async fn delete_upcaster(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    app.hub()?.schemas().delete_upcaster(&names.topic()?, from(&names)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn shown_upcaster(topic: &TopicName, stored: StoredUpcaster) -> Result<UpcasterAnswer, ApiError> {
    let StoredUpcaster { from, to, upcaster } = stored;
    let ops = serde_json::value::to_raw_value(&upcaster.ops)?;
    Ok(UpcasterAnswer { topic: topic.to_string(), from, to, ops })
}

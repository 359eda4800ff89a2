//! Collections: list, show, create, change and delete.

use crate::answers::json_of;
use crate::auth::{AccessRequest, Action, Caller};
use crate::body::{json_body, parse_optional};
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
use futures::StreamExt;
use prombus_core::collection::{Index, IndexState, Progress};
use prombus_core::{CollectionState, FieldPath, TopicName};
use prombus_engine::collections::CollectionSettings;
use prombus_wire::{
    self as wire, CollectionAnswer, CollectionIndex, CollectionOwner, CollectionRequest, FullIndexRequest,
    IndexAnswer, IndexRequest,
};

/// A collection as it is answered.
fn shown(state: &CollectionState) -> CollectionAnswer {
    let config = &state.config;
    let owner = config.owner.as_projection();
    let index = |IndexState { index, progress, .. }: &IndexState| IndexAnswer {
        index: CollectionIndex {
            fields: index.fields.iter().map(FieldPath::to_string).collect(),
            unique: index.unique,
        },
        state: match progress {
            Progress::Ready => wire::IndexState::Ready,
            Progress::Building { done, of, .. } => wire::IndexState::Building { done: *done, of: *of },
            Progress::Failed(failure) => {
                let (keys, reason) = (failure.keys().to_vec(), failure.to_string());
                wire::IndexState::Failed { keys, reason }
            }
        },
    };
    CollectionAnswer {
        name: state.name.to_string(),
        count: state.documents,
        size: state.bytes,
        owner: owner.map_or(CollectionOwner::Commits, |name| CollectionOwner::Projection(name.to_owned())),
        indexes: state.indexes.iter().map(index).collect(),
        changefeed: config.changefeed.as_ref().map(TopicName::to_string),
    }
}

/// The same as a caller may see it: why an index cannot be made tells keys and values.
fn shown_to(caller: &Caller, state: &CollectionState) -> CollectionAnswer {
    let mut answer = shown(state);
    if !caller.may(AccessRequest::on(Action::Read, &state.name)) {
        for index in &mut answer.indexes {
            if let wire::IndexState::Failed { keys, reason } = &mut index.state {
                keys.clear();
                *reason = format!("shown to those who have `read` on {}", state.name);
            }
        }
    }
    answer
}

/// The answer for a collection that does not exist.
pub(crate) fn missing(name: &str) -> ApiError {
    ApiError::not_found(format!("collection {name} does not exist"))
}

/// `GET /v1/collections`.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    _: NoParams,
) -> Result<Response, ApiError> {
    let mut states = app.hub()?.collections().list().await?;
    states.retain(|state| caller.may(AccessRequest::on(Action::Read, &state.name)));
    // Each has the paths of all its indexes: together that may be far more than is worth holding.
    let shown =
        futures::stream::iter(states).map(|state| serde_json::to_vec(&shown(&state)).map_err(ApiError::from));
    pieces::answer(Array::new("collections", shown.boxed()), JSON, (&app, caller)).await
}

/// `GET /v1/collections/{collection}`.
pub(crate) async fn show(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let name = names.collection()?;
    let state = app.hub()?.collections().get(name).await?;
    Ok(json_of(StatusCode::OK, &shown(&state.ok_or_else(|| missing(name))?)))
}

/// `PUT /v1/collections/{collection}`.
pub(crate) async fn put(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let settings = settings(parse_optional(&body)?)?;
    let name = names.collection()?;
    if let Some(topic) = &settings.changefeed {
        // A changefeed copies the contents of the collection elsewhere, on behalf of the caller.
        caller.check(AccessRequest::on(Action::Read, name))?;
        caller.check(AccessRequest::on(Action::Publish, topic.as_str()))?;
    }
    if settings.indexes.iter().any(|index| index.unique) {
        // Whether two documents have the same values, and which, is told by whether it can be made.
        caller.check(AccessRequest::on(Action::Read, name))?;
    }
    let (state, made) = app.hub()?.collections().put(name, settings).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_of(status, &shown_to(&caller, &state)))
}

/// `DELETE /v1/collections/{collection}`.
pub(crate) async fn delete(
    State(app): State<App>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    app.hub()?.collections().delete(names.collection()?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn settings(request: CollectionRequest) -> Result<CollectionSettings, ApiError> {
    let index = |index| {
        let (fields, unique) = match index {
            IndexRequest::Fields(fields) => (fields, false),
            IndexRequest::Full(FullIndexRequest { fields, unique }) => (fields, unique.unwrap_or(false)),
        };
        let fields = fields.iter().map(|field| FieldPath::parse(field)).collect::<Result<_, _>>()?;
        Ok(Index { fields, unique })
    };
    Ok(CollectionSettings {
        indexes: request
            .indexes
            .unwrap_or_default()
            .into_iter()
            .map(index)
            .collect::<Result<_, ApiError>>()?,
        changefeed: request.changefeed.map(|topic| TopicName::parse(&topic)).transpose()?,
    })
}

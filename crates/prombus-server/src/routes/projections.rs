//! Projections: list, show, create, change, delete and rebuild.

use crate::answers::json_of;
use crate::auth::{AccessRequest, Action, Caller};
use crate::body::{json_body, parse_optional};
use crate::cluster::{Forwarded, gather};
use crate::definition::Fields;
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
use prombus_engine::Hub;
use prombus_engine::homes::Place;
use prombus_engine::projections::{
    Definition, Holdings, ProjectionError, ProjectionPartition, ProjectionState, ProjectionStatus,
    RebuildStatus,
};
use prombus_wire::{ProjectionAnswer, ProjectionsAnswer, RebuildAnswer, RebuildRequest};
use std::collections::BTreeMap;

/// A projection as it is answered.
pub(crate) fn shown(status: &ProjectionStatus) -> ProjectionAnswer {
    let (state, reason) = match &status.state {
        ProjectionState::Running => (prombus_wire::ProjectionState::Running, None),
        ProjectionState::Starting => {
            (prombus_wire::ProjectionState::Waiting, Some("its expressions are being compiled".to_owned()))
        }
        ProjectionState::Waiting(topic) => {
            (prombus_wire::ProjectionState::Waiting, Some(format!("topic {topic} does not exist yet")))
        }
        ProjectionState::Stopped(reason) => (prombus_wire::ProjectionState::Stopped, Some(reason.clone())),
    };
    let partition = |at: &ProjectionPartition| prombus_wire::ProjectionPartition {
        partition: at.partition.0,
        next: at.next.0,
        tail: at.tail.0,
        lag: at.tail.0.saturating_sub(at.next.0),
    };
    let rebuild = |rebuild: &RebuildStatus| RebuildAnswer { lag: rebuild.lag, failed: rebuild.failed };
    ProjectionAnswer {
        name: status.name.clone(),
        kind: kind(&status.definition).to_owned(),
        topic: status.definition.topic.to_string(),
        collections: status.collections.clone(),
        definition: serde_json::json!(status.definition),
        state,
        reason,
        stale: status.stale,
        lag: status.lag,
        partitions: status.partitions.iter().map(partition).collect(),
        errors: status.errors,
        last_error: status.last_error.clone(),
        rebuild: status.rebuild.as_ref().map(rebuild),
        rebuild_error: status.rebuild_error.clone(),
        truncated: false,
    }
}

/// A definition has a collection or writes. Only that of a projection in Rust, which the hub cannot see into, has neither.
fn kind(definition: &Definition) -> &'static str {
    match (&definition.collection, definition.write.is_empty()) {
        (_, false) => "transactional",
        (Some(_), true) => "changelog",
        (None, true) => "code",
    }
}

/// The same as a caller may see it: what went wrong with events may quote them.
fn shown_to(caller: &Caller, status: &ProjectionStatus) -> ProjectionAnswer {
    let topic = status.definition.topic.as_str();
    let mut answer = shown(status);
    if !caller.may(AccessRequest::on(Action::Read, topic)) {
        let hide = |error: &mut Option<String>| {
            if error.is_some() {
                *error = Some(format!("shown to those who have `read` on {topic}"));
            }
        };
        hide(&mut answer.last_error);
        hide(&mut answer.rebuild_error);
        if answer.state == prombus_wire::ProjectionState::Stopped {
            hide(&mut answer.reason);
        }
    }
    answer
}

fn admin(name: &str) -> AccessRequest<'_> {
    AccessRequest::on(Action::Admin, name)
}

/// A projection as a caller may see it, if it is there and the caller administers its topic. One that runs on another hub is
/// not told of to a hub that asks: that asks each by itself.
pub(crate) async fn visible_to(
    (caller, hub): (&Caller, &Hub),
    name: &str,
    is_forwarded: bool,
) -> Result<Option<ProjectionAnswer>, ApiError> {
    match hub.projections().get(name).await {
        Ok(status) => {
            let topic = &status.definition.topic;
            let is_told = !is_forwarded || hub.place(topic) == Place::Here;
            Ok((is_told && caller.may(admin(topic.as_str()))).then(|| shown_to(caller, &status)))
        }
        Err(ProjectionError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Deleting a projection requires `admin` on everything it uses, and on every collection that goes with it.
fn check_removal(caller: &Caller, holdings: &Holdings) -> Result<(), ApiError> {
    let Holdings { definition, collections, left_behind } = holdings;
    caller.check(admin(definition.topic.as_str()))?;
    collections.iter().chain(left_behind).try_for_each(|name| caller.check(admin(name)))
}

/// Changing or rebuilding a projection moves its events again, and requires the same rights.
fn check_change(caller: &Caller, holdings: &Holdings) -> Result<(), ApiError> {
    check_names(caller, &holdings.definition, holdings.collections.iter().map(|name| &**name))
}

/// A rebuild ends by removing the collections that only earlier definitions wrote.
fn check_rebuild(caller: &Caller, holdings: &Holdings) -> Result<(), ApiError> {
    check_change(caller, holdings)?;
    holdings.left_behind.iter().try_for_each(|name| caller.check(admin(name)))
}

/// `GET /v1/projections`.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    forwarded: Option<Extension<Forwarded>>,
    _: NoParams,
) -> Result<Response, ApiError> {
    let hub = app.hub()?.clone();
    let asking = caller.clone();
    let is_forwarded = forwarded.is_some();
    // What runs elsewhere is not known here but by name.
    let mut told = BTreeMap::new();
    if let Some(cluster) = app.cluster.as_deref().filter(|_| !is_forwarded) {
        let parts = gather::<ProjectionsAnswer>(cluster, &hub, ("/v1/projections", &caller)).await;
        let all = parts.into_iter().filter_map(|part| part.part).flat_map(|part| part.projections);
        told.extend(all.map(|one| (one.name.clone(), one)));
    }
    let own = hub.projections().names().into_iter().filter(|name| !told.contains_key(name));
    let mut all: Vec<(String, Option<ProjectionAnswer>)> = own.map(|name| (name, None)).collect();
    all.extend(told.into_iter().map(|(name, answer)| (name, Some(answer))));
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    // Each has its definition: together that may be far more than is worth holding.
    let shown = futures::stream::iter(all).filter_map(move |(name, told)| {
        let (caller, hub) = (asking.clone(), hub.clone());
        async move {
            let answer = match told {
                Some(told) => Ok(told),
                None => visible_to((&caller, &hub), &name, is_forwarded).await.transpose()?,
            };
            Some(answer.and_then(|answer| Ok(serde_json::to_vec(&answer)?)))
        }
    });
    pieces::answer(Array::new("projections", shown.boxed()), JSON, (&app, caller)).await
}

/// `GET /v1/projections/{name}`.
pub(crate) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let status = app.hub()?.projections().get(names.get("name")).await?;
    caller.check(admin(status.definition.topic.as_str()))?;
    Ok(json_of(StatusCode::OK, &shown_to(&caller, &status)))
}

/// `PUT /v1/projections/{name}`.
pub(crate) async fn put(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let (projections, name) = (app.hub()?.projections(), names.get("name"));
    let definition = parse(name, &body)?;
    check_definition(&caller, &definition)?;
    let (asking, new) = (caller.clone(), definition.clone());
    let may_change = move |before: Option<&Holdings>| {
        let Some(before) = before else { return Ok(()) };
        check_change(&asking, before)?;
        check_new_feeds(&asking, &before.definition, &new)
    };
    let (status, made) = projections.put_if(name, definition, may_change).await?;
    let code = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_of(code, &shown_to(&caller, &status)))
}

fn parse(name: &str, body: &[u8]) -> Result<Definition, ApiError> {
    let mut fields = Fields::parse(body)?;
    if let Some(given) = fields.take("name") {
        let given: String = serde_json::from_str(given.get())
            .map_err(|_| ApiError::bad_request("name: it must be a string"))?;
        if given != name {
            let message = format!("name: it is {name:?} in the path and {given:?} in the body");
            return Err(ApiError::bad_request(message));
        }
    }
    fields.read()
}

/// A definition requires `admin` on everything that it reads, writes and publishes to.
fn check_definition(caller: &Caller, definition: &Definition) -> Result<(), ApiError> {
    let written = definition.write.iter().map(|write| &write.collection);
    check_names(caller, definition, definition.collection.iter().chain(written).map(String::as_str))
}

/// A projection copies the contents of its topic to where others may read them, on behalf of the caller, who must
/// therefore be allowed to read the source and to write the destination.
fn check_names<'a>(
    caller: &Caller,
    definition: &Definition,
    mut collections: impl Iterator<Item = &'a str>,
) -> Result<(), ApiError> {
    let topic = definition.topic.as_str();
    caller.check(admin(topic))?;
    caller.check(AccessRequest::on(Action::Read, topic))?;
    let publish = |topic| caller.check(AccessRequest::on(Action::Publish, topic));
    collections.try_for_each(|name| caller.check(admin(name)).and_then(|()| publish(name)))?;
    definition.changefeeds().try_for_each(|(_, topic)| publish(topic.as_str()))
}

/// A changefeed added later also reveals the existing contents of its collection.
fn check_new_feeds(caller: &Caller, before: &Definition, definition: &Definition) -> Result<(), ApiError> {
    let mut new = definition.changefeeds().filter(|feed| !before.changefeeds().any(|known| known == *feed));
    new.try_for_each(|(collection, _)| caller.check(AccessRequest::on(Action::Read, collection)))
}

/// `DELETE /v1/projections/{name}`.
pub(crate) async fn delete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    _: NoParams,
) -> Result<Response, ApiError> {
    let (projections, name) = (app.hub()?.projections(), names.get("name"));
    projections.delete_if(name, move |holdings: &Holdings| check_removal(&caller, holdings)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /v1/projections/{name}/rebuild`.
pub(crate) async fn rebuild(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    names: PathNames,
    request: Request,
) -> Result<Response, ApiError> {
    let body = json_body(&app, request).await?;
    let RebuildRequest { partial } = parse_optional(&body)?;
    let (projections, name) = (app.hub()?.projections(), names.get("name"));
    let may_rebuild = |holdings: &Holdings| check_rebuild(&caller, holdings);
    let status = projections.rebuild_if(name, partial.unwrap_or(false), may_rebuild).await?;
    Ok(json_of(StatusCode::ACCEPTED, &shown_to(&caller, &status)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Auth, AuthOptions, Rules, Secret, StaticToken};
    use prombus_core::{Offset, Partition, TopicName};
    use serde_json::json;

    fn caller(scopes: &[&str]) -> Caller {
        let mut rules = Rules::default();
        scopes.iter().for_each(|scope| rules.add_scope(scope).unwrap());
        let tokens = vec![StaticToken { token: Secret::new("t"), rules }];
        Auth::open(AuthOptions::Tokens(tokens)).unwrap().caller(Some("t")).unwrap()
    }

    fn definition() -> Definition {
        let text = json!({"topic": "t", "write": [
            {"collection": "a", "key": "k", "set": "event.payload"},
            {"collection": "b", "key": "k", "inc": {"n": "1"}, "changefeed": "b.changed"},
        ]});
        parse("p", text.to_string().as_bytes()).unwrap()
    }

    fn holdings() -> Holdings {
        let collections = vec!["a".into(), "b".into()];
        Holdings { definition: definition(), collections, left_behind: vec!["old".into()] }
    }

    fn status(state: ProjectionState) -> ProjectionStatus {
        let at = |partition, next, tail| ProjectionPartition {
            partition: Partition(partition),
            next: Offset(next),
            tail: Offset(tail),
        };
        ProjectionStatus {
            name: "p".into(),
            definition: definition(),
            collections: vec!["a".into(), "b".into()],
            state,
            stale: true,
            lag: 5,
            partitions: vec![at(0, 2, 7), at(1, 3, 3)],
            errors: 2,
            last_error: Some("no such key".into()),
            rebuild: Some(RebuildStatus { lag: 4, failed: 1 }),
            rebuild_error: Some("the topic was deleted meanwhile".into()),
        }
    }

    #[test]
    fn how_a_projection_is_shown() {
        let answer = json!(shown(&status(ProjectionState::Running)));
        let expected = json!({
            "name": "p", "kind": "transactional", "topic": "t", "collections": ["a", "b"],
            "definition": json!(definition()), "state": "running", "stale": true, "lag": 5,
            "partitions": [{"partition": 0, "next": 2, "tail": 7, "lag": 5}, {"partition": 1, "next": 3, "tail": 3, "lag": 0}],
            "errors": 2, "last_error": "no such key", "rebuild": {"lag": 4, "failed": 1},
            "rebuild_error": "the topic was deleted meanwhile",
        });
        assert_eq!(answer, expected);
        let topic = TopicName::parse("t").unwrap();
        let waiting = shown(&status(ProjectionState::Waiting(topic)));
        assert_eq!(
            (waiting.state, waiting.reason.as_deref()),
            (prombus_wire::ProjectionState::Waiting, Some("topic t does not exist yet"))
        );
        let stopped = ProjectionStatus {
            definition: parse("p", br#"{"topic":"t","collection":"c"}"#).unwrap(),
            last_error: None,
            rebuild: None,
            rebuild_error: None,
            ..status(ProjectionState::Stopped("it is gone".into()))
        };
        let stopped = json!(shown(&stopped));
        assert_eq!((&stopped["kind"], &stopped["state"]), (&json!("changelog"), &json!("stopped")));
        assert_eq!((&stopped["reason"], &stopped["rebuild"]), (&json!("it is gone"), &json!(null)));
        let code =
            Definition { collection: None, ..parse("p", br#"{"topic":"t","collection":"c"}"#).unwrap() };
        assert_eq!(kind(&code), "code", "the definition of a projection in Rust names nothing but its topic");
        assert!(["last_error", "rebuild_error"].iter().all(|name| stopped.get(*name).is_none()));
        assert!(stopped.get("rebuild").is_some());
    }

    #[test]
    fn a_name_is_the_paths() {
        assert!(parse("p", br#"{"name":"p","topic":"t","collection":"c"}"#).is_ok());
        for bad in [r#"{"name":"q","topic":"t"}"#, r#"{"name":1,"topic":"t"}"#] {
            let error = parse("p", bad.as_bytes()).unwrap_err();
            assert!(error.message().starts_with("name: "), "{error:?}");
        }
    }

    #[test]
    fn whoever_sets_one_up_needs_its_topic_its_collections_and_its_changefeeds() {
        let holdings = holdings();
        let needed =
            ["admin:t", "read:t", "admin:a", "publish:a", "admin:b", "publish:b", "publish:b.changed"];
        let may = |scopes: &[&str]| {
            let caller = caller(scopes);
            let may = check_definition(&caller, &definition()).is_ok();
            assert_eq!(check_change(&caller, &holdings).is_ok(), may, "a change needs the same");
            may
        };
        assert!(may(&needed) && may(&["*:**"]));
        for lacking in needed {
            let others: Vec<&str> = needed.into_iter().filter(|scope| *scope != lacking).collect();
            assert!(!may(&others), "without {lacking}");
        }
        let remove = |scopes: &[&str]| check_removal(&caller(scopes), &holdings).is_ok();
        assert!(remove(&["admin:*"]) && !remove(&["admin:a", "admin:b", "admin:old"]));
        assert!(!remove(&["admin:t", "admin:a", "admin:old"]) && !remove(&["admin:t", "admin:a", "admin:b"]));
        let rebuild = |scopes: &[&str]| check_rebuild(&caller(scopes), &holdings).is_ok();
        assert!(rebuild(&[&needed[..], &["admin:old"]].concat()) && !rebuild(&needed));
    }

    #[test]
    fn a_changefeed_that_is_added_needs_to_read_the_collection() {
        let mut before = definition();
        let add = |before: &Definition, scopes: &[&str]| {
            check_new_feeds(&caller(scopes), before, &definition()).is_ok()
        };
        assert!(add(&before, &["admin:**"]), "the same one is not added");
        before.write[1].changefeed = None;
        assert!(!add(&before, &["admin:**", "read:t"]) && add(&before, &["read:b"]));
        before.write[1].changefeed = TopicName::parse("elsewhere").ok();
        assert!(!add(&before, &["admin:**", "read:t"]), "another one is");
    }
}

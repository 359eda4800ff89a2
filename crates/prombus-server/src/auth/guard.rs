//! The middleware that authenticates and authorises a request before its handler runs.

use super::refusals::Asked;
use super::{Caller, Need};
use crate::cluster::{self, Cluster};
use crate::error::ApiError;
use crate::gateway::{App, Shared, need_of};
use crate::path::PathNames;
use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Lets a request through if its caller has the required rights.
pub(crate) async fn guard(app: &App, request: Request, next: Next) -> Response {
    if let Some(cluster) = app.cluster.as_deref().filter(|_| cluster::is_forwarded(request.headers())) {
        return Box::pin(admit_hub(app, cluster, request, next)).await;
    }
    let page = app.origins.page(request.headers());
    if let Some(mut answer) = page.preflight(request.method(), request.headers()) {
        app.origins.vary(&mut answer);
        return answer;
    }
    let (mut parts, body) = request.into_parts();
    let upgrade = parts.headers.contains_key(header::UPGRADE);
    let need = need(&parts);
    let checked = check_host(app, need, &parts).and_then(|()| page.check(&parts.method, upgrade));
    let checked = match checked {
        Ok(()) => admit(app, need, &mut parts).await,
        Err(error) => Err(error),
    };
    let caller = parts.extensions.get::<Caller>().cloned();
    let (method, route) = (parts.method.clone(), parts.extensions.get::<MatchedPath>().cloned());
    let answer = match checked {
        Ok(()) => cluster::door(app, Request::from_parts(parts, body), next).await,
        Err(error) => error.into_response(),
    };
    let (route, subject) =
        (route.as_ref().map(MatchedPath::as_str), caller.as_ref().and_then(Caller::subject));
    app.auth.log.answer(Asked { method: &method, route, subject }, &answer);
    let mut answer = page.tell(answer);
    app.origins.vary(&mut answer);
    answer
}

/// Lets a request of another hub through, if it is from one. That has checked the rights of its caller, and they are checked
/// again here: what is forwarded may do no more than what comes here at first.
async fn admit_hub(app: &App, cluster: &Cluster, request: Request, next: Next) -> Response {
    let (method, route) = (request.method().clone(), request.extensions().get::<MatchedPath>().cloned());
    let route = route.as_ref().map(MatchedPath::as_str);
    let heard = match cluster::hear(app, cluster, request).await {
        Ok(heard) => heard,
        Err(answer) => {
            app.auth.log.answer(Asked { method: &method, route, subject: None }, &answer);
            return *answer;
        }
    };
    let (mut parts, body, key) = heard.split();
    let checked = async {
        let names = PathNames::from_request_parts(&mut parts, app).await?;
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_else(Caller::nobody);
        need(&parts).check(&caller, &names, &parts.headers)
    };
    let answer = match checked.await {
        Ok(()) => cluster::door(app, Request::from_parts(parts, body), next).await,
        Err(error) => error.into_response(),
    };
    key.sign(answer)
}

/// The rights that the request requires. An unknown route is reported only to callers with a token.
fn need(parts: &Parts) -> Need {
    let path = parts.extensions.get::<MatchedPath>();
    path.map_or(Need::Token, |path| need_of(path.as_str(), &parts.method))
}

/// Refuses requests for other hosts. Probes are exempt: they learn nothing but that the hub exists.
fn check_host(app: &Shared, need: Need, parts: &Parts) -> Result<(), ApiError> {
    match &app.hosts {
        Some(hosts) if need != Need::Nothing => {
            hosts.check(&parts.uri, &parts.headers).map_err(ApiError::forbidden)
        }
        _ => Ok(()),
    }
}

/// Authenticates and authorises the caller, and attaches it to the request, unless it has not identified itself yet.
async fn admit(app: &Shared, need: Need, parts: &mut Parts) -> Result<(), ApiError> {
    if !app.auth.is_on() {
        parts.extensions.insert(Caller::anyone());
        return Ok(());
    }
    let token = match (need, bearer(&parts.headers)) {
        (Need::Nothing, _) => {
            parts.extensions.insert(Caller::anyone());
            return Ok(());
        }
        (Need::TokenOrLater, Ok(None)) => return Ok(()),
        (_, token) => token?,
    };
    let caller = app.auth.caller(token)?;
    parts.extensions.insert(caller.clone());
    let names = PathNames::from_request_parts(parts, app).await?;
    need.check(&caller, &names, &parts.headers)
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(first) = given.next() else { return Ok(None) };
    let token = first.to_str().ok().and_then(|text| text.split_once(' '));
    match token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && given.next().is_none() => {
            Ok(Some(token.trim()))
        }
        _ => Err(ApiError::unauthorized("send exactly one header Authorization: Bearer <token>")),
    }
}

//! Backups: beginning and ending one, and the files of it in pieces.

use crate::answers::json_of;
use crate::body::{json_body, parse_optional};
use crate::error::ApiError;
use crate::gateway::App;
use crate::params::{NoParams, Params};
use crate::path::PathNames;
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prombus_core::FileFingerprint;
use prombus_engine::PieceRequest;
use prombus_engine::backups::{LEASE, PIECE_BYTES};
use prombus_wire::{BackupAnswer, BackupFile, BackupRequest, PIECE_DIGEST};
use uuid::Uuid;

/// What a file takes in the answer, about.
const FILE_BYTES: usize = 256;

/// `POST /v1/backups`.
pub(crate) async fn begin(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let BackupRequest {} = parse_optional(&json_body(&app, request).await?)?;
    let hub = app.hub()?;
    let backup = hub.backups().begin().await?;
    let _room = app.memory.reserve(backup.files().len() * FILE_BYTES).await.inspect_err(|_| {
        hub.backups().end(backup.id);
    })?;
    let file = |file: &prombus_core::CopyFile| BackupFile {
        name: file.name.clone(),
        bytes: file.bytes,
        mark: file.fingerprint.to_string(),
    };
    let answer = BackupAnswer {
        id: backup.id.to_string(),
        lease_ms: LEASE.as_millis() as u64,
        bytes: backup.files().iter().map(|file| file.bytes).sum(),
        files: backup.files().iter().map(file).collect(),
    };
    Ok(json_of(StatusCode::CREATED, &answer))
}

/// `GET /v1/backups/{id}/files/{name}`.
pub(crate) async fn piece(
    State(app): State<App>,
    names: PathNames,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let mut params = Params::parse(query.as_deref())?;
    let (from, mark) = (params.number("from")?.unwrap_or(0), params.one("mark")?);
    params.done("from, mark")?;
    let fingerprint = mark.map(|mark| mark.parse::<FileFingerprint>()).transpose();
    let fingerprint = fingerprint.map_err(|bad| ApiError::bad_request(bad.to_string()))?;
    let (id, name) = (id_of(&names)?, names.get("name").to_owned());
    let room = app.memory.reserve(PIECE_BYTES).await?;
    let piece = app.hub()?.backups().read(id, PieceRequest { name, from, fingerprint }).await?;
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::HeaderName::from_static(PIECE_DIGEST), format!("{:032x}", piece.digest)),
    ];
    let len = piece.bytes.len();
    Ok((head, axum::body::Body::from(room.hold_as(piece.bytes, len))).into_response())
}

/// `DELETE /v1/backups/{id}`.
pub(crate) async fn end(State(app): State<App>, names: PathNames, _: NoParams) -> Result<Response, ApiError> {
    // One that has ended already is what was asked for.
    app.hub()?.backups().end(id_of(&names)?);
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn id_of(names: &PathNames) -> Result<Uuid, ApiError> {
    let id = names.get("id");
    Uuid::try_parse(id).map_err(|_| ApiError::bad_request(format!("{id:?} is not the id of a backup")))
}

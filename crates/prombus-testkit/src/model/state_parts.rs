//! Random writes of documents and moves of cursors.

use super::Model;
use super::proposal::{PlannedMove, chance, pick};
use super::universe::{self, COLLECTIONS, DOCUMENTS};
use crate::Subject;
use crate::build::json;
use bytes::Bytes;
use prombus_core::{CursorKey, CursorMove, CursorTarget, DocumentWrite, Epoch, Offset, WriteOp};

/// Some writes, most of which make sense.
pub(super) async fn plan_documents(rng: &mut fastrand::Rng, reference: &Subject) -> Vec<DocumentWrite> {
    let mut writes = Vec::new();
    for _ in 0..rng.u32(1..4) {
        let (collection, key) = (*pick(rng, &COLLECTIONS), *pick(rng, &DOCUMENTS));
        let if_version = match rng.u32(0..10) {
            0..6 => None,
            6 => Some(rng.u64(0..4)),
            _ => Some(reference.document(collection, key).await.map_or(0, |document| document.version)),
        };
        let (collection, key) = (collection.to_owned(), key.to_owned());
        writes.push(DocumentWrite {
            if_version,
            ts: rng.u64(0..2_000),
            ..DocumentWrite::new(&collection, key, plan_op(rng))
        });
    }
    writes
}

fn plan_op(rng: &mut fastrand::Rng) -> WriteOp {
    let n = rng.u32(0..100);
    match rng.u32(0..100) {
        0..30 => WriteOp::Set(json(&format!("{{\"b\":{n}.50,\"a\":[{n}]}}"))),
        30..55 => WriteOp::Merge(json(&format!("{{\"a\":{{\"x{}\":{n},\"y\":null}}}}", n % 3))),
        55..85 => WriteOp::Inc(json(&format!("{{\"n\":{n},\"f\":0.5}}"))),
        85..97 => WriteOp::Delete,
        // What `set` and `merge` leave in "a" is no number.
        97 => WriteOp::Inc(json("{\"a\":1}")),
        _ => WriteOp::Set(json("[]")),
    }
}

/// Some moves, most of which are from the present version.
pub(super) async fn plan_cursors(model: &mut Model, reference: &Subject) -> Vec<PlannedMove> {
    let Model { rng, incarnations, .. } = model;
    let all: Vec<CursorKey> = universe::cursors().collect();
    let mut moves = Vec::new();
    for _ in 0..rng.u32(1..3) {
        let key = pick(rng, &all).clone();
        let now = reference.cursor(&key).await;
        let version = now.as_ref().map_or(0, |cursor| cursor.version);
        let epoch = now.as_ref().map_or(1, |cursor| cursor.epoch.0);
        let expect_version = if chance(rng, 92) { version } else { rng.u64(0..5) };
        let epoch = Epoch(match rng.u32(0..10) {
            0 => epoch.saturating_sub(1),
            1..4 => epoch + 1,
            _ => epoch,
        });
        let detail = Bytes::from((0..rng.usize(0..20)).map(|_| rng.u8(..)).collect::<Vec<u8>>());
        let to = chance(rng, 90).then(|| CursorTarget { next: Offset(rng.u64(0..50)), detail });
        let read = match incarnations.get(&key.topic) {
            Some(all) if chance(rng, 8) => Some(rng.usize(0..all.len())),
            Some(all) if chance(rng, 50) => Some(all.len() - 1),
            _ => None,
        };
        let change = CursorMove { key, incarnation: None, expect_version, epoch, to };
        moves.push(PlannedMove { change, read });
    }
    moves
}

//! Running a plan: one page of its results.

use super::best::{Best, Limits};
use super::plan::{Order, Plan, plan};
use super::query::Query;
use super::seen::{Seen, Viewer};
use super::walk::walk;
use crate::documents::get;
use crate::rows::Rows;
use prombus_core::{CollectionState, Find, FoundDocuments, ReadError};

/// A query, and the page of it that is wanted.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub query: &'a Query,
    pub page: &'a Find,
}

/// The requested page.
pub fn run(rows: &dyn Rows, state: &CollectionState, asked: Asked<'_>) -> Result<FoundDocuments, ReadError> {
    let plan = plan(state, asked.query);
    let viewer = Viewer::new(rows, state, &plan, asked.query);
    match plan.order {
        Order::None => sorted(&viewer, &plan, asked),
        Order::Forwards | Order::Backwards => in_order(&viewer, &plan, asked.page),
    }
}

/// The rows come in the requested order, so the walk ends with the page.
fn in_order(viewer: &Viewer<'_>, plan: &Plan<'_>, page: &Find) -> Result<FoundDocuments, ReadError> {
    let mut found = FoundDocuments::default();
    let (mut to_pass, mut bytes) = (page.offset, 0);
    for row in walk(viewer.rows, &plan.ranges, plan.order) {
        let seen = viewer.see(row?)?;
        if !is_wanted(&seen, plan)? {
            continue;
        }
        if to_pass > 0 {
            to_pass -= 1;
        } else if found.documents.len() < page.limit && bytes < page.max_bytes {
            let document = seen.into_document()?;
            bytes += document.size();
            found.documents.push(document);
        } else {
            found.more = true;
            break;
        }
    }
    Ok(found)
}

/// The rows come in another order, so all are scanned, and the first ones kept.
fn sorted(viewer: &Viewer<'_>, plan: &Plan<'_>, asked: Asked<'_>) -> Result<FoundDocuments, ReadError> {
    let Find { offset, limit, max_bytes, sort_bytes, .. } = *asked.page;
    let end = offset.saturating_add(limit);
    let mut best = Best::new(end.saturating_add(1), Limits::of_bytes(sort_bytes));
    let mut sorted_by = Vec::new();
    for row in walk(viewer.rows, &plan.ranges, plan.order) {
        let seen = viewer.see(row?)?;
        if is_wanted(&seen, plan)? {
            sorted_by.clear();
            for (column, descending) in &asked.query.order {
                let start = sorted_by.len();
                seen.encode(column, &mut sorted_by)?;
                if *descending {
                    sorted_by[start..].iter_mut().for_each(|byte| *byte = !*byte);
                }
            }
            best.offer(&sorted_by, seen.key()?)?;
        }
    }
    let keys = best.into_keys();
    let (mut bytes, mut found) = (0, FoundDocuments { documents: Vec::new(), more: keys.len() > end });
    for key in keys.skip(offset).take(limit) {
        if bytes >= max_bytes {
            found.more = true;
            break;
        }
        let document = get(viewer.rows, viewer.state, &key)?.ok_or_else(|| viewer.damaged())?;
        bytes += document.size();
        found.documents.push(document);
    }
    Ok(found)
}

/// Whether a row meets the conditions that the walk alone does not guarantee.
fn is_wanted(seen: &Seen<'_>, plan: &Plan<'_>) -> Result<bool, ReadError> {
    let mut encoded = Vec::new();
    for (column, spans) in &plan.left {
        encoded.clear();
        seen.encode(column, &mut encoded)?;
        if !spans.contains(&encoded) {
            return Ok(false);
        }
    }
    Ok(true)
}

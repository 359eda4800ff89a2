//! Whether the user of a database may do in it what the hub does.

use mongodb::bson::{Bson, Document};

/// What the hub does in its database, and the role of MongoDB's own that lets it.
const NEEDED: [(&str, &str); 10] = [
    ("find", "readWrite"),
    ("insert", "readWrite"),
    ("update", "readWrite"),
    ("remove", "readWrite"),
    ("createCollection", "readWrite"),
    ("dropCollection", "readWrite"),
    ("createIndex", "readWrite"),
    ("listCollections", "readWrite"),
    ("changeStream", "readWrite"),
    ("collMod", "dbAdmin"),
];

/// What a user lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The user.
    pub user: String,
    /// What it may not do.
    pub actions: Vec<&'static str>,
    /// The roles that let it.
    pub roles: Vec<&'static str>,
}

/// What a user lacks in a database, by the answer to `connectionStatus` with privileges. Nothing where nobody has to say who he is.
pub fn missing(status: &Document, database: &str) -> Option<Missing> {
    let info = status.get_document("authInfo").ok()?;
    let user = info.get_array("authenticatedUsers").ok()?.first()?.as_document()?;
    let privileges = info.get_array("authenticatedUserPrivileges").ok()?;
    let granted: Vec<&str> = privileges
        .iter()
        .filter_map(Bson::as_document)
        .filter_map(|one| actions_in(one, database))
        .flatten()
        .collect();
    let lacks: Vec<_> = NEEDED.iter().filter(|(action, _)| !granted.contains(action)).collect();
    if lacks.is_empty() {
        return None;
    }
    let mut roles: Vec<&str> = lacks.iter().map(|(_, role)| *role).collect();
    roles.dedup();
    let user = user.get_str("user").unwrap_or_default().to_owned();
    Some(Missing { user, actions: lacks.iter().map(|(action, _)| *action).collect(), roles })
}

/// What a privilege lets a user do in all of a database.
fn actions_in<'a>(privilege: &'a Document, database: &str) -> Option<Vec<&'a str>> {
    let resource = privilege.get_document("resource").ok()?;
    let is_any = resource.get_bool("anyResource").unwrap_or(false);
    let is =
        |field: &str, wanted: &[&str]| resource.get_str(field).is_ok_and(|found| wanted.contains(&found));
    let is_meant = is_any || (is("db", &[database, ""]) && is("collection", &[""]));
    if !is_meant {
        return None;
    }
    Some(privilege.get_array("actions").ok()?.iter().filter_map(Bson::as_str).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    fn status(privileges: Vec<Document>) -> Document {
        doc! { "authInfo": {
            "authenticatedUsers": [{ "user": "hub", "db": "admin" }],
            "authenticatedUserPrivileges": privileges,
        } }
    }

    fn on(db: &str, collection: &str, actions: &[&str]) -> Document {
        doc! { "resource": { "db": db, "collection": collection }, "actions": actions }
    }

    #[test]
    fn what_is_missing_is_named_with_its_role() {
        let read_write: Vec<&str> =
            NEEDED.iter().map(|(action, _)| *action).filter(|a| *a != "collMod").collect();
        assert_eq!(missing(&doc! { "authInfo": { "authenticatedUsers": [] } }, "prom"), None);
        let all = status(vec![on("prom", "", &read_write), on("prom", "", &["collMod", "compact"])]);
        assert_eq!(missing(&all, "prom"), None);
        let everywhere = status(vec![on("", "", &read_write), on("", "", &["collMod"])]);
        assert_eq!(missing(&everywhere, "prom"), None);
        let root = status(vec![doc! { "resource": { "anyResource": true }, "actions": ["collMod"] }]);
        assert_eq!(missing(&root, "prom").map(|missing| missing.roles), Some(vec!["readWrite"]));
        let half = missing(&status(vec![on("prom", "", &read_write)]), "prom");
        let lacks = Missing { user: "hub".into(), actions: vec!["collMod"], roles: vec!["dbAdmin"] };
        assert_eq!(half, Some(lacks));
        let elsewhere = status(vec![on("other", "", &read_write), on("prom", "events", &read_write)]);
        let lacks = missing(&elsewhere, "prom").unwrap_or_else(|| panic!("it may do nothing there"));
        assert_eq!((lacks.actions.len(), lacks.roles), (NEEDED.len(), vec!["readWrite", "dbAdmin"]));
    }
}

//! What a caller may do: rules over actions, topics and groups. A deny overrides any allow, and anything that no rule
//! allows is denied.

use crate::pattern::{BadPattern, Pattern};
use serde::{Deserialize, Serialize};

/// An action that requires a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Publish to a topic.
    Publish,
    /// Consume a topic, in a group or as a stream.
    Subscribe,
    /// Read a topic.
    Read,
    /// Configure and monitor.
    Admin,
}

impl Action {
    const ALL: [(&str, Self); 4] = [
        ("publish", Self::Publish),
        ("subscribe", Self::Subscribe),
        ("read", Self::Read),
        ("admin", Self::Admin),
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, action)| *action == self).map_or("", |(name, _)| name)
    }
}

/// An action on one topic, or on one group of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
    pub action: Action,
    pub topic: &'a str,
    pub group: Option<&'a str>,
}

impl<'a> AccessRequest<'a> {
    /// An action on a topic, or on a collection, whatever the groups.
    pub fn on(action: Action, topic: &'a str) -> Self {
        Self { action, topic, group: None }
    }
}

/// All rights of a caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    deny: bool,
    /// `None`: any.
    action: Option<Action>,
    topics: Vec<Pattern>,
    /// `None`: any, and anything not related to groups.
    groups: Option<Vec<Pattern>>,
}

/// Why rules are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRules {
    /// A scope is malformed.
    #[error(
        "{0:?} is not a scope: write it as publish:orders.*, with publish, subscribe, read, admin or * before the colon"
    )]
    Scope(String),
    /// A pattern has a misplaced wildcard.
    #[error("{0}")]
    Pattern(String),
}

/// The claim `policy`. Unknown fields are refused: a misspelt `groups` must not widen a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    rules: Vec<PolicyRule>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyRule {
    effect: Effect,
    action: PolicyAction,
    topics: Vec<String>,
    groups: Option<Vec<String>>,
}

impl PolicyRule {
    /// Whether it says the same of its topics.
    fn is_like(&self, other: &Self) -> bool {
        (&self.effect, &self.action, &self.groups) == (&other.effect, &other.action, &other.groups)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Effect {
    Allow,
    Deny,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "action must be publish, subscribe, read, admin or *")]
enum PolicyAction {
    One(Action),
    Any(Any),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Any {
    #[serde(rename = "*")]
    Any,
}

impl From<BadPattern> for BadRules {
    fn from(bad: BadPattern) -> Self {
        Self::Pattern(bad.to_string())
    }
}

impl Rules {
    /// Adds a scope such as `publish:heartbeat.*`.
    pub fn add_scope(&mut self, scope: &str) -> Result<(), BadRules> {
        let bad = || BadRules::Scope(scope.to_owned());
        let (action, topics) = scope.split_once(':').ok_or_else(bad)?;
        let action = match action {
            "*" => None,
            name => {
                Some(Action::ALL.iter().find(|(known, _)| *known == name).map(|(_, a)| *a).ok_or_else(bad)?)
            }
        };
        let topics = vec![Pattern::parse(topics)?];
        self.0.push(Rule { deny: false, action, topics, groups: None });
        Ok(())
    }

    /// Adds the rules of a policy.
    pub fn add_policy(&mut self, policy: Policy) -> Result<(), BadRules> {
        let patterns = |texts: Vec<String>| {
            texts.iter().map(|text| Pattern::parse(text)).collect::<Result<_, BadPattern>>()
        };
        for PolicyRule { effect, action, topics, groups } in policy.rules {
            self.0.push(Rule {
                deny: effect == Effect::Deny,
                action: match action {
                    PolicyAction::One(action) => Some(action),
                    PolicyAction::Any(Any::Any) => None,
                },
                topics: patterns(topics)?,
                groups: groups.map(patterns).transpose()?,
            });
        }
        Ok(())
    }

    /// The same as a policy, for those who get it told.
    pub(crate) fn to_policy(&self) -> Policy {
        let texts = |patterns: &[Pattern]| patterns.iter().map(Pattern::text).collect();
        let rule = |rule: &Rule| PolicyRule {
            effect: if rule.deny { Effect::Deny } else { Effect::Allow },
            action: rule.action.map_or(PolicyAction::Any(Any::Any), PolicyAction::One),
            topics: texts(&rule.topics),
            groups: rule.groups.as_deref().map(texts),
        };
        let mut rules: Vec<PolicyRule> = Vec::new();
        for told in self.0.iter().map(rule) {
            // Scopes differ in nothing but their topics, mostly.
            match rules.last_mut() {
                Some(last) if last.is_like(&told) => last.topics.extend(told.topics),
                _ => rules.push(told),
            }
        }
        Policy { rules }
    }

    pub(crate) fn allow(&self, request: AccessRequest<'_>) -> bool {
        let mut allowed = false;
        for rule in self.0.iter().filter(|rule| rule.matches(request)) {
            if rule.deny {
                return false;
            }
            allowed = true;
        }
        allowed
    }

    /// Whether a rule explicitly denies it.
    pub(crate) fn deny(&self, request: AccessRequest<'_>) -> bool {
        self.0.iter().any(|rule| rule.deny && rule.matches(request))
    }

    /// Whether there may be groups of the topic as which somebody may subscribe.
    pub(crate) fn allow_some_group(&self, topic: &str) -> bool {
        let matching = || self.0.iter().filter(|rule| rule.is_about(Action::Subscribe, topic));
        matching().any(|rule| !rule.deny) && !matching().any(|rule| rule.deny && rule.groups.is_none())
    }

    /// Whether `action` is allowed on everything, whatever its name.
    pub(crate) fn allow_everywhere(&self, action: Action) -> bool {
        let about = || self.0.iter().filter(|rule| rule.action.is_none_or(|of| of == action));
        let is_of_all = |rule: &Rule| rule.groups.is_none() && rule.topics.iter().any(Pattern::is_everything);
        about().any(is_of_all) && !about().any(|rule| rule.deny)
    }

    /// Whether `action` might be allowed on anything.
    pub(crate) fn allow_somewhere(&self, action: Action) -> bool {
        self.0.iter().any(|rule| !rule.deny && rule.action.is_none_or(|of| of == action))
    }
}

impl Rule {
    fn matches(&self, request: AccessRequest<'_>) -> bool {
        let group = match (&self.groups, request.group) {
            (None, _) => true,
            (Some(patterns), Some(group)) => patterns.iter().any(|pattern| pattern.matches(group)),
            (Some(_), None) => false,
        };
        group && self.is_about(request.action, request.topic)
    }

    fn is_about(&self, action: Action, topic: &str) -> bool {
        self.action.is_none_or(|of| of == action)
            && names(topic).any(|name| self.topics.iter().any(|pattern| pattern.matches(name)))
    }
}

/// The names that a topic is checked under: the rights on a topic also cover its dead letters, which contain its
/// events.
fn names(topic: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(topic), |name| name.strip_prefix("dlq."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(scopes: &[&str], policy: serde_json::Value) -> Rules {
        let mut rules = Rules::default();
        scopes.iter().for_each(|scope| rules.add_scope(scope).unwrap());
        rules.add_policy(serde_json::from_value(json!({ "rules": policy })).unwrap()).unwrap();
        rules
    }

    fn access(action: Action, topic: &str) -> AccessRequest<'_> {
        AccessRequest::on(action, topic)
    }

    #[test]
    fn what_no_rule_allows_is_denied_and_a_deny_wins() {
        assert!(!Rules::default().allow(access(Action::Read, "a")));
        let rules = rules(
            &["publish:heartbeat.*", "*:own.**"],
            json!([
                {"effect": "deny", "action": "*", "topics": ["own.secret.**"]},
                {"effect": "allow", "action": "read", "topics": ["**"]},
            ]),
        );
        assert!(rules.allow(access(Action::Publish, "heartbeat.web")));
        assert!(!rules.allow(access(Action::Publish, "heartbeat")));
        assert!(!rules.allow(access(Action::Subscribe, "heartbeat.web")));
        assert!(rules.allow(access(Action::Admin, "own.x")));
        assert!(
            !rules.allow(access(Action::Read, "own.secret")),
            "whatever else allows it, and in whichever order"
        );
        assert!(rules.allow(access(Action::Read, "other")));
        assert!(rules.allow_somewhere(Action::Admin));
        assert!(!super::tests::rules(&["read:**"], json!([])).allow_somewhere(Action::Admin));
    }

    #[test]
    fn everything_is_everything() {
        let everywhere = |scopes: &[&str], policy| rules(scopes, policy).allow_everywhere(Action::Admin);
        let none = || json!([]);
        assert!(everywhere(&["admin:**"], none()));
        assert!(everywhere(&["*:**"], none()));
        for scopes in
            [&["admin:*"][..], &["admin:**.x"], &["admin:a.**"], &["read:**"], &["admin:a", "admin:*"], &[]]
        {
            assert!(!everywhere(scopes, none()), "{scopes:?}");
        }
        let deny = |action| json!([{"effect": "deny", "action": action, "topics": ["secret"]}]);
        assert!(!everywhere(&["admin:**"], deny("admin")));
        assert!(!everywhere(&["admin:**"], deny("*")));
        assert!(everywhere(&["admin:**"], deny("publish")));
        let some = json!([{"effect": "allow", "action": "admin", "topics": ["**"], "groups": ["g"]}]);
        assert!(!everywhere(&[], some));
    }

    #[test]
    fn rules_are_the_same_as_their_policy() {
        let rules = rules(
            &["publish:heartbeat.*", "publish:b", "*:own.**", "admin:**"],
            json!([
                {"effect": "deny", "action": "*", "topics": ["own.secret.**", "a"]},
                {"effect": "allow", "action": "subscribe", "topics": ["**"], "groups": ["g.*", "h"]},
                {"effect": "deny", "action": "read", "topics": ["x"], "groups": []},
            ]),
        );
        let told = serde_json::to_string(&rules.to_policy()).unwrap();
        let mut heard = Rules::default();
        heard.add_policy(serde_json::from_str(&told).unwrap()).unwrap();
        assert_eq!((heard.to_policy(), heard.to_policy().rules.len()), (rules.to_policy(), 6));
        for topic in ["heartbeat.x", "b", "own", "own.secret", "a", "x", "y"] {
            for (_, action) in Action::ALL {
                for group in [None, Some("g.1"), Some("h"), Some("i")] {
                    let request = AccessRequest { action, topic, group };
                    assert_eq!(heard.allow(request), rules.allow(request), "{request:?}");
                }
            }
        }
    }

    #[test]
    fn groups_narrow_a_rule() {
        let rules = rules(
            &[],
            json!([
                {"effect": "allow", "action": "subscribe", "topics": ["orders"], "groups": ["billing.*", "audit"]},
                {"effect": "deny", "action": "subscribe", "topics": ["**"], "groups": ["billing.old"]},
            ]),
        );
        let may = |group| rules.allow(AccessRequest { action: Action::Subscribe, topic: "orders", group });
        assert!(may(Some("billing.new")) && may(Some("audit")));
        assert!(!may(Some("billing.old")) && !may(Some("billing")) && !may(Some("x")));
        assert!(!may(None), "a stream is in no group");
        assert!(rules.allow_some_group("orders") && !rules.allow_some_group("other"));
    }

    #[test]
    fn dead_letters_go_with_their_topic() {
        let rules =
            rules(&["read:**"], json!([{"effect": "deny", "action": "read", "topics": ["secret.**"]}]));
        assert!(rules.allow(access(Action::Read, "dlq.orders")));
        assert!(!rules.allow(access(Action::Read, "dlq.secret.x")));
        assert!(!rules.allow(access(Action::Read, "dlq.dlq.secret.x")));
        let own = super::tests::rules(&["read:orders"], json!([]));
        assert!(own.allow(access(Action::Read, "dlq.orders")));
        let none = super::tests::rules(
            &["read:**"],
            json!([{"effect": "deny", "action": "read", "topics": ["dlq.**"]}]),
        );
        assert!(
            !none.allow(access(Action::Read, "dlq.orders")) && none.allow(access(Action::Read, "orders"))
        );
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for bad in ["publish", "write:a", ":a", "publish:", "publish:a*", "Publish:a"] {
            assert!(Rules::default().add_scope(bad).is_err(), "{bad}");
        }
        for bad in [
            json!({"rules": [{"effect": "allow", "action": "read", "topics": ["a"], "group": ["b"]}]}),
            json!({"rules": [{"effect": "maybe", "action": "read", "topics": ["a"]}]}),
            json!({"rules": [{"effect": "allow", "action": "write", "topics": ["a"]}]}),
            json!({"rules": [{"effect": "allow", "action": "read"}]}),
            json!({"rules": [], "rule": []}),
            json!({}),
        ] {
            assert!(serde_json::from_value::<Policy>(bad.clone()).is_err(), "{bad}");
        }
        let odd = json!({"rules": [{"effect": "deny", "action": "read", "topics": ["secret-*"]}]});
        assert!(Rules::default().add_policy(serde_json::from_value(odd).unwrap()).is_err());
    }
}

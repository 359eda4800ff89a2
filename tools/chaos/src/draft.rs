//! The events that are sent: every kind of field and number, each payload different from every other.

use super::plan::Topic;
use fastrand::Rng;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// How many keys there are beside those of chains.
const KEYS: u32 = 40;
/// Keys that are not plain words.
const ODD_KEYS: [&str; 3] = ["a/b?c&d", "\"quoted\"\n\t", "ключ 🔑"];
/// The longest filling of an ordinary payload.
const FILL_BYTES: usize = 300;
/// How far back a given `ts` may lie.
const PAST_MS: u64 = 1_000_000_000;
/// Fields whose every digit must survive.
const FIELDS: [&str; 9] = [
    r#""d":1.10"#,
    r#""n":123456789012345678901234567890"#,
    r#""e":1e400"#,
    r#""z":-0.0"#,
    r#""s":"\u00e9\/\n\"""#,
    r#""t":"ö€😀""#,
    r#""a":[1,[2,{"b":null}],[]]"#,
    r#""u":{"é":true,"":false}"#,
    r#""E":1E+2"#,
];

/// An event before the hub has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    /// The payload as it must come out.
    pub payload: String,
    /// The payload as it is sent, where that has whitespace more.
    pub spaced: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// Its own id.
    pub id: Option<Uuid>,
    /// Its own event time.
    pub ts: Option<u64>,
    /// A string.
    pub sid: Option<String>,
    /// The value of the header `x-note`.
    pub note: Option<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// The partition that it asks for.
    pub partition: Option<u32>,
    /// What the latest event of its key must be.
    pub expect: Option<Option<Uuid>>,
    /// Whether other requests carry it too.
    pub shared: bool,
}

/// Makes drafts.
pub struct Drafter {
    /// Where its randomness comes from.
    pub rng: Rng,
    /// What its payloads start with, which no other drafter has.
    pub name: String,
    count: u64,
}

impl Drafter {
    /// A drafter of its own name.
    pub fn new(name: String, seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), name, count: 0 }
    }

    /// An event for a topic.
    pub fn draft(&mut self, topic: &Topic) -> Draft {
        let fill = self.rng.usize(..FILL_BYTES);
        let mut draft = self.bare(fill);
        match self.rng.u32(..10) {
            0 => draft.key = Some(ODD_KEYS[self.rng.usize(..ODD_KEYS.len())].to_owned()),
            1..=5 => draft.key = Some(format!("k{}", self.rng.u32(..KEYS))),
            6 => draft.partition = Some(self.rng.u32(..topic.partitions)),
            _ => {}
        }
        if self.rng.u32(..3) == 0 {
            draft.id = Some(self.id());
        }
        if self.rng.u32(..5) == 0 {
            draft.ts = Some(now_ms() - self.rng.u64(..PAST_MS));
        }
        if self.rng.u32(..8) == 0 {
            draft.sid = Some("sid \"1\" ö".to_owned());
            draft.note = Some("note 1".to_owned());
            draft.tags = vec!["#a".to_owned(), "b c".to_owned()];
        }
        draft
    }

    /// An event with nothing but a payload of at least `fill` bytes.
    pub fn bare(&mut self, fill: usize) -> Draft {
        self.count += 1;
        let tag = format!("{}-{}", self.name, self.count);
        let filling = "x".repeat(fill);
        if self.rng.u32(..10) == 0 {
            return Draft { payload: format!("\"{tag} {filling}\""), ..Draft::default() };
        }
        let mut fields: Vec<String> = FIELDS.iter().map(|field| (*field).to_owned()).collect();
        fields.retain(|_| self.rng.u32(..4) == 0);
        fields.push(format!("\"tag\":\"{tag}\""));
        fields.push(format!("\"fill\":\"{filling}\""));
        self.rng.shuffle(&mut fields);
        let spaced = (self.rng.u32(..4) == 0).then(|| format!(" {{ {} }} ", fields.join(" ,\t")));
        Draft { payload: format!("{{{}}}", fields.join(",")), spaced, ..Draft::default() }
    }

    /// A producer's own id.
    pub fn id(&mut self) -> Uuid {
        Uuid::from_u128(self.rng.u128(..))
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_json_and_never_alike() {
        let mut drafter = Drafter::new("a".into(), 1);
        let topic = Topic { name: "t".into(), partitions: 4, durability: "sync" };
        let drafts: Vec<Draft> = (0..500).map(|_| drafter.draft(&topic)).collect();
        let mut payloads: Vec<&str> = drafts.iter().map(|draft| draft.payload.as_str()).collect();
        for draft in &drafts {
            for text in draft.spaced.iter().chain([&draft.payload]) {
                assert!(serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok(), "{text}");
                assert!(!text.contains('\n'), "{text}");
            }
            assert!(draft.key.is_none() || draft.partition.is_none());
        }
        payloads.sort_unstable();
        payloads.dedup();
        assert_eq!(payloads.len(), 500);
    }
}

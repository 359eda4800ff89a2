//! What each file of a folder of schemas is, by its name.

use super::File;
use std::collections::BTreeMap;

/// The folder with the upcasters of a topic.
const UPCASTERS: &str = "upcasters";

/// The files of one topic.
#[derive(Debug, Default)]
pub struct TopicFiles<'f> {
    /// Its versions, by number.
    pub versions: BTreeMap<u32, &'f File>,
    /// Its upcasters, by the version that they raise from.
    pub upcasters: BTreeMap<u32, &'f File>,
}

/// The files of a folder, by what they are.
#[derive(Debug, Default)]
pub struct Layout<'f> {
    /// The files of each topic. Whether it can have that name is not looked at.
    pub topics: BTreeMap<&'f str, TopicFiles<'f>>,
    /// The paths of files that are nothing that is known.
    pub strange: Vec<&'f str>,
}

impl<'f> Layout<'f> {
    /// Tells by their names what files are. Notes (`*.md`) and hidden files are passed over.
    pub fn of(files: &'f [File]) -> Self {
        let mut layout = Self::default();
        for file in files {
            let names: Vec<&str> = file.path.split('/').collect();
            let last = names.last().copied().unwrap_or_default();
            if names.iter().any(|name| name.starts_with('.')) || last.ends_with(".md") {
                continue;
            }
            let known = match names.as_slice() {
                [topic, name] => number(name, "v").map(|number| (*topic, number, false)),
                [topic, UPCASTERS, name] => number(name, "").map(|number| (*topic, number, true)),
                _ => None,
            };
            let Some((topic, number, raises)) = known else {
                layout.strange.push(&file.path);
                continue;
            };
            let files = layout.topics.entry(topic).or_default();
            let place = if raises { &mut files.upcasters } else { &mut files.versions };
            place.insert(number, file);
        }
        layout
    }
}

/// The number in `v12.json`, written in the one way that there is.
fn number(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(".json")?;
    let number: u32 = digits.parse().ok()?;
    (number > 0 && number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        let file = |path: &str| File { path: path.to_owned(), text: Ok(String::new()) };
        let files = [
            "a.b/v2.json",
            "a.b/v10.json",
            "a.b/upcasters/2.json",
            "a.b/README.md",
            ".git/config",
            "a.b/.v3.json.swp",
            "a.b/v0.json",
            "a.b/v01.json",
            "a.b/v+1.json",
            "a.b/V1.json",
            "a.b/v1.jsn",
            "a.b/v4294967296.json",
            "a.b/upcasters/v1.json",
            "a.b/upcasters/more/1.json",
            "v1.json",
        ]
        .map(file);
        let layout = Layout::of(&files);
        let topic = &layout.topics["a.b"];
        assert_eq!(topic.versions.keys().copied().collect::<Vec<_>>(), [2, 10]);
        assert_eq!(topic.upcasters.keys().copied().collect::<Vec<_>>(), [2]);
        assert_eq!((layout.topics.len(), layout.strange.len()), (1, 9), "{:?}", layout.strange);
    }
}

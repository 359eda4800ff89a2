//! Documents of a collection that meet conditions, page by page.

use crate::{Client, ClientError};
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::fmt::Display;

/// A page of documents.
#[derive(Debug, Clone, Deserialize)]
pub struct ListPage {
    /// The number of documents before it.
    pub offset: u64,
    /// The maximum number of documents on it.
    pub limit: u64,
    /// The number of documents on it.
    pub count: u64,
    /// The documents as the hub wrote them.
    pub items: Vec<Box<RawValue>>,
    /// The offset of the next page; `None` on the last one.
    pub next: Option<u64>,
}

impl ListPage {
    /// The documents as values.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<Vec<T>, ClientError> {
        let parsed = self.items.iter().map(|item| serde_json::from_str(item.get()));
        parsed.collect::<Result<_, _>>().map_err(ClientError::BadPayload)
    }
}

/// What to list. Values are interpreted according to the type of the field: `80` is a number if the field holds a
/// number, and a string if it holds a string.
///
/// ```no_run
/// # async fn example(client: prombus_client::Client) -> Result<(), prombus_client::ClientError> {
/// let busy = client.list("processes").eq("status", "alive").gte("cpu_pct", 80).sort("-cpu_pct");
/// for process in busy.limit(10).page().await?.parse::<serde_json::Value>()? {
///     println!("{} on {}", process["name"], process["host"]);
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is requested until `page` or `pages` is called"]
#[derive(Debug, Clone)]
pub struct List<'c> {
    client: &'c Client,
    collection: String,
    conditions: Vec<(String, String)>,
    sort: Option<String>,
    offset: u64,
    limit: Option<u64>,
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident = $op:literal,)*) => {
        impl List<'_> {
            $($(#[$doc])* pub fn $name(self, field: impl Display, value: impl Display) -> Self {
                self.condition(format!(concat!("{}[", $op, "]"), field), value.to_string())
            })*
        }
    };
}

comparisons! {
    /// The field equals this. Dots reach into nested fields, as in `cpu.load`.
    eq = "eq",
    /// The field does not equal this, or is missing.
    ne = "ne",
    /// The field is greater than this.
    gt = "gt",
    /// The field is greater than or equal to this.
    gte = "gte",
    /// The field is less than this.
    lt = "lt",
    /// The field is less than or equal to this.
    lte = "lte",
}

impl<'c> List<'c> {
    /// The field is one of these.
    pub fn any_of<V: Display>(self, field: impl Display, values: impl IntoIterator<Item = V>) -> Self {
        let escaped = |value: V| value.to_string().replace('\\', "\\\\").replace(',', "\\,");
        let values: Vec<String> = values.into_iter().map(escaped).collect();
        self.condition(format!("{field}[in]"), values.join(","))
    }

    /// A condition as in the URL: `status`, or `cpu_pct[gte]`, and the value. `offset`, `limit` and `sort` need an
    /// operator.
    pub fn condition(mut self, parameter: impl Into<String>, value: impl Into<String>) -> Self {
        self.conditions.push((parameter.into(), value.into()));
        self
    }

    /// Sorts by this field, in descending order if it starts with `-`; several are separated by commas. By default, the
    /// newest come first.
    pub fn sort(mut self, sort: impl Into<String>) -> Self {
        self.sort = Some(sort.into());
        self
    }

    /// Skips this many documents.
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// The maximum number of documents per page: 1,000 at most, 100 by default.
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Fetches one page.
    pub async fn page(&self) -> Result<ListPage, ClientError> {
        let request = self.client.request(Method::GET, &["v1", "collections", &self.collection, "list"])?;
        let response = self.client.call(request.query(&self.parameters())).await?;
        self.client.answer(response).await
    }

    /// All pages from here on, one after the other. Each is requested when it is needed: documents that are written in
    /// the meantime may move to another page, and be seen twice or not at all.
    ///
    /// ```no_run
    /// # async fn example(client: prombus_client::Client) -> Result<(), prombus_client::ClientError> {
    /// let mut pages = client.list("processes").sort("_key").limit(1_000).pages();
    /// while let Some(page) = pages.next().await? {
    ///     page.items.iter().for_each(|document| println!("{document}"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn pages(self) -> ListPages<'c> {
        ListPages { list: Some(self) }
    }

    fn parameters(&self) -> Vec<(&str, String)> {
        let conditions = self.conditions.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let mut parameters: Vec<_> = conditions.collect();
        parameters.extend(self.sort.clone().map(|sort| ("sort", sort)));
        parameters.extend((self.offset > 0).then(|| ("offset", self.offset.to_string())));
        parameters.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        parameters
    }
}

/// Pages of documents, one after the other.
#[derive(Debug)]
pub struct ListPages<'c> {
    /// The next page; `None` after the last.
    list: Option<List<'c>>,
}

impl ListPages<'_> {
    /// The next page; `None` after the last. If it fails, it can be requested again.
    pub async fn next(&mut self) -> Result<Option<ListPage>, ClientError> {
        let Some(list) = &mut self.list else { return Ok(None) };
        let page = list.page().await?;
        match page.next {
            // One that does not get further would never end.
            Some(next) if next > list.offset => list.offset = next,
            _ => self.list = None,
        }
        Ok(Some(page))
    }
}

impl Client {
    /// Lists documents of a collection: see [`List`].
    pub fn list(&self, collection: &str) -> List<'_> {
        List {
            client: self,
            collection: collection.to_owned(),
            conditions: Vec::new(),
            sort: None,
            offset: 0,
            limit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_in_the_address() {
        let client = Client::new("http://hub", None).unwrap();
        let list = client.list("c").eq("a.b", "x&y=z").gte("n", 80).ne("s", true).any_of("h", ["a,b", "c\\"]);
        let list = list.sort("-_ts").offset(7).limit(9);
        let request = client.request(Method::GET, &["x"]).unwrap().query(&list.parameters()).build().unwrap();
        let pairs: Vec<(String, String)> = request.url().query_pairs().into_owned().collect();
        let expected = [
            ("a.b[eq]", "x&y=z"),
            ("n[gte]", "80"),
            ("s[ne]", "true"),
            ("h[in]", "a\\,b,c\\\\"),
            ("sort", "-_ts"),
            ("offset", "7"),
            ("limit", "9"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs, expected);
        assert!(client.list("c").parameters().is_empty());
    }

    #[test]
    fn documents_of_a_page_keep_their_digits() {
        let text = r#"{"offset":0,"limit":2,"count":2,"items":[{"n":1.10},{"n":2}],"next":2}"#;
        let page: ListPage = serde_json::from_str(text).unwrap();
        assert_eq!((page.items[0].get(), page.next), (r#"{"n":1.10}"#, Some(2)));
        assert_eq!(page.parse::<serde_json::Value>().unwrap()[1]["n"], 2);
        assert!(matches!(page.parse::<u64>(), Err(ClientError::BadPayload(_))));
    }
}

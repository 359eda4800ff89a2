//! Lists of a collection: every operator on every type, order, pages, indexes, and what is refused.

use crate::contract_support::{Api, Site, encoded};
use crate::state_support::{
    caught_up, changelog, define, doc, emit, emit_as, found, keys, list, list_all, list_path, on_both_stores,
    put_all, with,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A site with one document for each value, named by its place, whose field `v` has it.
fn site_of(values: &[Value]) -> Site {
    let site = Site::start();
    fill(&site.api, values);
    site
}

fn fill(api: &Api, values: &[Value]) {
    let names: Vec<String> = (0..values.len()).map(|n| n.to_string()).collect();
    let documents: Vec<(&str, Value)> =
        names.iter().zip(values).map(|(name, value)| (name.as_str(), json!({"v": value}))).collect();
    put_all(api, "c", &documents);
}

/// The places of the values that a query finds.
#[track_caller]
fn places(api: &Api, query: &str) -> Vec<usize> {
    let mut all: Vec<usize> = keys(api, "c", query).iter().map(|key| key.parse().unwrap()).collect();
    all.sort_unstable();
    all
}

#[track_caller]
fn is_bad(api: &Api, query: &str) {
    let answer = api.get(&list_path("c", query));
    assert_eq!(answer.status, 400, "{query}: {} {}", answer.status, answer.text());
    answer.fails(400, "bad_request");
}

#[test]
fn whole_numbers_are_compared_as_numbers() {
    on_both_stores(|api| {
        fill(api, &[json!(-10), json!(-9), json!(0), json!(9), json!(10), json!(100)]);
        assert_eq!(places(api, "v=10"), [4]);
        assert_eq!(places(api, "v=-9"), [1]);
        assert_eq!(places(api, "v=11"), [0; 0]);
        assert_eq!(places(api, "v[gt]=9"), [4, 5]);
        assert_eq!(places(api, "v[gte]=9"), [3, 4, 5]);
        assert_eq!(places(api, "v[lt]=-9"), [0]);
        assert_eq!(places(api, "v[lte]=-9"), [0, 1]);
        assert_eq!(places(api, "v[ne]=0"), [0, 1, 3, 4, 5]);
        assert_eq!(places(api, "v[in]=0,100,7"), [2, 5]);
        assert_eq!(places(api, "v[gt]=-10&v[lt]=10"), [1, 2, 3]);
        assert_eq!(places(api, "v[gt]=9&v[lt]=9"), [0; 0]);
        // Halves lie between them.
        assert_eq!(places(api, "v[gt]=9.5"), [4, 5]);
        assert_eq!(places(api, "v[lte]=-9.5"), [0]);
        assert_eq!(places(api, "v=10.0"), [4]);
        assert_eq!(places(api, "v=1e1"), [4]);
    });
}

#[test]
fn doubles_are_compared_as_numbers() {
    let site = site_of(&[
        json!(-1.5),
        json!(0.1),
        json!(0.30000000000000004),
        json!(2.5),
        json!(1e308),
        json!(1e-300),
    ]);
    let api = &site.api;
    assert_eq!(places(api, "v=2.5"), [3]);
    assert_eq!(places(api, "v=2.50"), [3]);
    assert_eq!(places(api, "v=0.3"), [0; 0]);
    assert_eq!(places(api, "v=0.30000000000000004"), [2]);
    assert_eq!(places(api, "v[gt]=0.3"), [2, 3, 4]);
    assert_eq!(places(api, "v[gte]=1e308"), [4]);
    assert_eq!(places(api, "v[lt]=1e308&v[gt]=2"), [3]);
    assert_eq!(places(api, "v[lt]=0"), [0]);
    assert_eq!(places(api, "v[gt]=0&v[lt]=0.1"), [5]);
    assert_eq!(places(api, "v[in]=2.5,-1.5"), [0, 3]);
    assert_eq!(places(api, "v[gt]=2"), [3, 4]);
}

#[test]
fn big_numbers_are_not_rounded() {
    let big = 9_007_199_254_740_992_i64;
    let site = site_of(&[json!(big - 1), json!(big), json!(big + 1), json!(i64::MAX), json!(i64::MIN)]);
    let api = &site.api;
    for (place, value) in [(0, big - 1), (1, big), (2, big + 1), (3, i64::MAX), (4, i64::MIN)] {
        assert_eq!(places(api, &format!("v={value}")), [place]);
        assert_eq!(doc(api, "c", &place.to_string())["v"], value);
    }
    assert_eq!(places(api, &format!("v[gt]={big}")), [2, 3]);
    assert_eq!(places(api, &format!("v[gte]={}", big + 1)), [2, 3]);
    assert_eq!(places(api, &format!("v[lt]={}", big + 1)), [0, 1, 4]);
    assert_eq!(places(api, &format!("v[ne]={big}")), [0, 2, 3, 4]);
    assert_eq!(places(api, "v[lte]=-9223372036854775808"), [4]);
    assert_eq!(places(api, "v[gt]=9223372036854775806"), [3]);
    assert_eq!(keys(api, "c", "sort=v"), ["4", "0", "1", "2", "3"]);
}

#[test]
fn whole_numbers_and_doubles_have_one_order() {
    let big = 9_007_199_254_740_992_i64;
    let values =
        [json!(2), json!(2.5), json!(3), json!(-0.5), json!(0), json!(big + 1), json!(9.007199254740992e15)];
    let site = site_of(&values);
    let api = &site.api;
    assert_eq!(keys(api, "c", "sort=v"), ["3", "4", "0", "1", "2", "6", "5"]);
    assert_eq!(keys(api, "c", "sort=-v"), ["5", "6", "2", "1", "0", "4", "3"]);
    assert_eq!(places(api, "v[gt]=2&v[lt]=3"), [1]);
    assert_eq!(places(api, &format!("v={big}")), [6]);
    assert_eq!(places(api, &format!("v[gt]={big}")), [5]);
}

#[test]
fn minus_nought_is_nought() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    site.api.events("t", r#"[{"payload":{"id":"0","v":-0.0}},{"payload":{"id":"1","v":0}},{"payload":{"id":"2","v":0.0}}]"#).is(201);
    caught_up(&site.api, "p");
    for query in ["v=0", "v=-0.0", "v=0.0", "v=-0", "v[gte]=0", "v[lte]=0", "v[in]=0"] {
        assert_eq!(places(&site.api, query), [0, 1, 2], "{query}");
    }
    for query in ["v[gt]=0", "v[lt]=0", "v[lt]=-0.0", "v[gt]=-0.0", "v[ne]=0"] {
        assert_eq!(places(&site.api, query), [0; 0], "{query}");
    }
}

#[test]
fn text_is_compared_as_text() {
    let values = [
        "alive", "Alive", "dead", "", "10", "9", "é", "zz", "日本", "a b", "a,b", "a&b=c", "%", "null",
        "true",
    ];
    on_both_stores(|api| {
        fill(api, &values.map(|value| json!(value)));
        for (place, value) in values.iter().enumerate() {
            assert_eq!(places(api, &format!("v={}", encoded(value))), [place], "{value:?}");
            assert_eq!(
                places(api, &format!("v[ne]={}", encoded(value))).len(),
                values.len() - 1,
                "{value:?}"
            );
        }
        // By code points, not by numbers and not by any language.
        assert_eq!(places(api, "v[lt]=9"), [3, 4, 12]);
        assert_eq!(places(api, "v[gte]=z"), [6, 7, 8]);
        assert_eq!(places(api, "v[gt]=zz"), [6, 8]);
        assert_eq!(places(api, "v[lte]=Alive&v[gte]=9"), [1, 5]);
        assert_eq!(places(api, &format!("v[in]=alive,dead,{}", encoded("日本"))), [0, 2, 8]);
        assert_eq!(places(api, "v=a+b"), places(api, "v=a%20b"));
    });
}

#[test]
fn booleans_and_null_are_found_by_their_names() {
    let site = site_of(&[json!(true), json!(false), json!(null), json!(1), json!(0)]);
    let api = &site.api;
    assert_eq!(places(api, "v=true"), [0]);
    assert_eq!(places(api, "v=false"), [1]);
    assert_eq!(places(api, "v=null"), [2]);
    assert_eq!(places(api, "v=1"), [3]);
    assert_eq!(places(api, "v[ne]=null"), [0, 1, 3, 4]);
    assert_eq!(places(api, "v[ne]=true"), [1, 2, 3, 4]);
    assert_eq!(places(api, "v[in]=true,false"), [0, 1]);
    assert_eq!(places(api, "v[in]=null,1"), [2, 3]);
}

#[test]
fn a_value_is_read_as_what_is_stored() {
    let site = site_of(&[
        json!(5),
        json!("5"),
        json!(5.0),
        json!("true"),
        json!(true),
        json!("05"),
        json!(null),
        json!("null"),
    ]);
    let api = &site.api;
    assert_eq!(places(api, "v=5"), [0, 1, 2]);
    assert_eq!(places(api, "v=05").last(), Some(&5));
    assert_eq!(places(api, "v=true"), [3, 4]);
    assert_eq!(places(api, "v=null"), [6, 7]);
}

#[test]
fn dots_reach_inside() {
    let site = Site::start();
    let api = &site.api;
    put_all(
        api,
        "c",
        &[
            ("0", json!({"a": {"b": {"c": 1}}})),
            ("1", json!({"a": {"b": {"c": 2}, "x": "y"}})),
            ("2", json!({"a": {"b": 1}})),
            ("3", json!({"a": 1})),
            ("4", json!({"a": null})),
            ("5", json!({"a": {"ключ": "да"}})),
        ],
    );
    assert_eq!(places(api, "a.b.c=1"), [0]);
    assert_eq!(places(api, "a.b.c[gte]=1"), [0, 1]);
    assert_eq!(places(api, "a.b=1"), [2]);
    assert_eq!(places(api, "a=1"), [3]);
    assert_eq!(places(api, "a.x=y"), [1]);
    assert_eq!(places(api, "a.b.c.d=1"), [0; 0]);
    assert_eq!(places(api, &format!("a.{}={}", encoded("ключ"), encoded("да"))), [5]);
    assert_eq!(places(api, "a.b.c[in]=1,2&sort=-a.b.c"), [0, 1]);
    assert_eq!(keys(api, "c", "a.b.c[in]=1,2&sort=-a.b.c"), ["1", "0"]);
}

#[test]
fn odd_field_names_are_kept_and_answered_or_refused() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    let names = [
        "$set",
        "$",
        "_mine",
        "__v",
        "a b",
        "é",
        "日本",
        "ünï.cödé",
        "x.y",
        "-x",
        "[0]",
        "a[gt]",
        "%",
        "",
        ".",
    ];
    for (place, name) in names.iter().enumerate() {
        emit(&site.api, "t", &json!({"id": format!("f{place}"), *name: "here"}));
    }
    emit(&site.api, "t", &json!({"id": "other", "x": {"y": "there"}}));
    caught_up(&site.api, "p");
    let api = &site.api;
    for (place, name) in names.iter().enumerate() {
        assert_eq!(doc(api, "c", &format!("f{place}"))[*name], "here", "{name:?}");
    }
    for (place, name) in names.iter().enumerate().take(7) {
        let (key, name) = (format!("f{place}"), encoded(name));
        assert_eq!(keys(api, "c", &format!("{name}=here")), [key.as_str()]);
        assert_eq!(keys(api, "c", &format!("{name}[gte]=here&sort={name}")), [key.as_str()]);
    }
    assert!(keys(api, "c", "x.y=there").contains(&"other".to_owned()));
    for name in ["ünï.cödé", "x.y", "-x", "[0]", "a[gt]", "%", "", "."] {
        let answer = api.get(&list_path("c", &format!("{}=here", encoded(name))));
        match answer.status {
            200 => assert!(list(api, "c", &format!("{}=nowhere", encoded(name)))["count"] == 0),
            _ => drop(answer.fails(400, "bad_request")),
        }
    }
}

#[test]
fn what_the_hub_adds_can_be_asked_for() {
    let site = Site::start();
    define(&site.api, "p", &with(changelog("t", "c"), "version", json!("event.payload.rev")));
    for (n, id) in (1..=5).zip(["a", "b", "c", "d", "e"]) {
        emit_as(&site.api, "t", json!({"payload": {"id": id, "rev": n * 10}, "ts": n * 1000}));
    }
    caught_up(&site.api, "p");
    let api = &site.api;
    assert_eq!(keys(api, "c", "_key=c"), ["c"]);
    assert_eq!(keys(api, "c", "_key[in]=e,a"), ["e", "a"]);
    assert_eq!(keys(api, "c", "_key[gt]=c"), ["e", "d"]);
    assert_eq!(keys(api, "c", "_ts=2000"), ["b"]);
    assert_eq!(keys(api, "c", "_ts[lte]=2000"), ["b", "a"]);
    assert_eq!(keys(api, "c", "_v[gte]=40"), ["e", "d"]);
    assert_eq!(keys(api, "c", "sort=_v&_v[lt]=30"), ["a", "b"]);
    assert_eq!(keys(api, "c", "sort=-_key&limit=2"), ["e", "d"]);
}

#[test]
fn brackets_may_be_encoded() {
    let site = site_of(&[json!(1), json!(2)]);
    assert_eq!(places(&site.api, "v%5Bgt%5D=1"), [1]);
    assert_eq!(places(&site.api, "v%5bgt%5d=1"), [1]);
    assert_eq!(places(&site.api, "%76=1"), [0]);
}

#[test]
fn several_filters_all_have_to_hold() {
    let site = Site::start();
    let api = &site.api;
    let documents: Vec<(String, Value)> =
        (0..24).map(|n| (n.to_string(), json!({"two": n % 2, "three": n % 3, "n": n}))).collect();
    let documents: Vec<(&str, Value)> =
        documents.iter().map(|(key, one)| (key.as_str(), one.clone())).collect();
    put_all(api, "c", &documents);
    assert_eq!(places(api, "two=1&three=2"), [5, 11, 17, 23]);
    assert_eq!(places(api, "two=1&three=2&n[gt]=11"), [17, 23]);
    assert_eq!(places(api, "two=1&three[ne]=2&n[lte]=7&n[ne]=3"), [1, 7]);
    assert_eq!(places(api, "two=1&none=1"), [0; 0]);
}

#[test]
fn the_newest_come_first() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    for (id, ts) in [("b", 2000), ("d", 4000), ("a", 1000), ("c", 3000)] {
        emit_as(&site.api, "t", json!({"payload": {"id": id}, "ts": ts}));
    }
    caught_up(&site.api, "p");
    assert_eq!(keys(&site.api, "c", ""), ["d", "c", "b", "a"]);
    assert_eq!(keys(&site.api, "c", "sort=-_ts"), ["d", "c", "b", "a"]);
    assert_eq!(keys(&site.api, "c", "sort=_ts"), ["a", "b", "c", "d"]);
    // A change moves it to the front.
    emit_as(&site.api, "t", json!({"payload": {"id": "b"}, "ts": 5000}));
    caught_up(&site.api, "p");
    assert_eq!(keys(&site.api, "c", ""), ["b", "d", "c", "a"]);
}

#[test]
fn a_sort_drops_nobody() {
    let values =
        [json!(3), json!("x"), json!(null), json!(true), json!([1]), json!({"a": 1}), json!(1.5), json!("")];
    let site = site_of(&values);
    put_all(&site.api, "c", &[("8", json!({"other": 1}))]);
    for sort in ["v", "-v", "other", "-other", "nothing", "v.a", "-v.a", "_key", "-_ts"] {
        assert_eq!(places(&site.api, &format!("sort={sort}")), (0..9).collect::<Vec<_>>(), "{sort}");
        let one_by_one = list_all(&site.api, "c", &format!("sort={sort}&limit=1"));
        let whole = list_all(&site.api, "c", &format!("sort={sort}"));
        assert_eq!(one_by_one, whole, "{sort}");
    }
    // One way is the other way turned round, but for those that are alike.
    let up = keys(&site.api, "c", "sort=v&v[gt]=0");
    let mut down = keys(&site.api, "c", "sort=-v&v[gt]=0");
    down.reverse();
    assert_eq!(up, down);
}

#[test]
fn pages_cover_everything_exactly_once() {
    on_both_stores(|api| {
        define(api, "p", &changelog("t", "c"));
        let events: Vec<Value> = (0..57)
            .map(|n| json!({"payload": {"id": format!("k{n}"), "n": n % 5}, "ts": 1000 + n % 3}))
            .collect();
        api.events("t", &json!(events).to_string()).is(201);
        caught_up(api, "p");
        for limit in [1, 2, 7, 19, 56, 57, 58, 1000] {
            for query in ["", "sort=n", "sort=-n", "sort=_key", "n[gte]=0&sort=-_ts"] {
                let all = list_all(api, "c", &format!("{query}&limit={limit}"));
                let distinct: BTreeSet<&str> = all.iter().map(|one| one["_key"].as_str().unwrap()).collect();
                assert_eq!((all.len(), distinct.len()), (57, 57), "{query} by {limit}");
            }
        }
        assert_eq!(list_all(api, "c", "n=3&limit=2").len(), 11);
    });
}

#[test]
fn a_page_tells_where_it_is_and_where_the_next_begins() {
    let site = site_of(&[json!(0), json!(1), json!(2), json!(3), json!(4)]);
    let page = |query: &str| {
        let mut page = list(&site.api, "c", query);
        page.as_object_mut().unwrap().remove("items");
        page
    };
    assert_eq!(page(""), json!({"offset": 0, "limit": 100, "count": 5, "next": null}));
    assert_eq!(page("limit=2"), json!({"offset": 0, "limit": 2, "count": 2, "next": 2}));
    assert_eq!(page("limit=2&offset=2"), json!({"offset": 2, "limit": 2, "count": 2, "next": 4}));
    assert_eq!(page("limit=2&offset=4"), json!({"offset": 4, "limit": 2, "count": 1, "next": null}));
    assert_eq!(page("limit=5"), json!({"offset": 0, "limit": 5, "count": 5, "next": null}));
    assert_eq!(page("limit=2&offset=3"), json!({"offset": 3, "limit": 2, "count": 2, "next": null}));
    assert_eq!(page("offset=5"), json!({"offset": 5, "limit": 100, "count": 0, "next": null}));
    assert_eq!(page("offset=1000000"), json!({"offset": 1_000_000, "limit": 100, "count": 0, "next": null}));
    assert_eq!(page("v[lt]=3&limit=2"), json!({"offset": 0, "limit": 2, "count": 2, "next": 2}));
    assert_eq!(page("v[lt]=2&limit=2"), json!({"offset": 0, "limit": 2, "count": 2, "next": null}));
}

#[test]
fn a_page_has_a_hundred_unless_told_otherwise() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    let events: Vec<Value> = (0..1001).map(|n| json!({"payload": {"id": n.to_string()}})).collect();
    site.api.events("t", &json!(events).to_string()).is(201);
    caught_up(&site.api, "p");
    assert_eq!(list(&site.api, "c", "")["count"], 100);
    let page = list(&site.api, "c", "limit=1000");
    assert_eq!((&page["count"], &page["next"]), (&json!(1000), &json!(1000)));
    assert_eq!(list_all(&site.api, "c", "").len(), 1001);
}

#[test]
fn the_items_are_the_documents() {
    let site = Site::start();
    define(&site.api, "p", &changelog("t", "c"));
    emit(&site.api, "t", &json!({"id": "a", "deep": {"x": [1, 2.5, null, "é"]}}));
    emit(&site.api, "t", &json!({"id": "b", "n": 9_007_199_254_740_993_i64}));
    caught_up(&site.api, "p");
    for item in list(&site.api, "c", "")["items"].as_array().unwrap() {
        assert_eq!(item, &doc(&site.api, "c", item["_key"].as_str().unwrap()));
    }
}

#[test]
fn a_limit_is_one_to_a_thousand() {
    let site = site_of(&[json!(1)]);
    for bad in ["0", "1001", "-1", "x", "", "1.5", "1e2", "99999999999999999999", "%20", "10x", "0x10"] {
        is_bad(&site.api, &format!("limit={bad}"));
    }
    for bad in ["-1", "x", "", "1.5", "99999999999999999999", "%20"] {
        is_bad(&site.api, &format!("offset={bad}"));
    }
    is_bad(&site.api, "limit=1&limit=2");
    is_bad(&site.api, "offset=0&offset=1");
}

#[test]
fn an_operator_that_is_none_is_refused() {
    let site = site_of(&[json!(1)]);
    for bad in ["v[foo]=1", "v[]=1", "v[GT]=1", "v[$gt]=1", "v[eqq]=1", "v[regex]=1", "v[gt]%20=1"] {
        is_bad(&site.api, bad);
    }
    // Either a field of that name, or a mistake: never the whole list.
    for odd in ["v[gt=0", "v]=1", "v[gt][lt]=0", "[gt]=0", "limit[gt]=0", "offset[gt]=0", "sort[gt]=v"] {
        let answer = site.api.get(&list_path("c", odd));
        assert!(answer.status == 400 || answer.is(200)["count"] == 0, "{odd}: {answer:?}");
    }
}

#[test]
fn a_sort_that_is_none_is_refused() {
    let site = site_of(&[json!(1)]);
    for bad in ["sort=", "sort=-", "sort=v&sort=-v"] {
        is_bad(&site.api, bad);
    }
    for odd in ["sort=--v", "sort=%2Bv", "sort=v:asc", "sort=v,-w", "sort=%20", "sort=,", "sort=.", "sort=v."]
    {
        let answer = site.api.get(&list_path("c", odd));
        assert!(matches!(answer.status, 200 | 400), "{odd}: {answer:?}");
    }
}

#[test]
fn a_query_that_is_broken_is_a_bad_request() {
    let site = site_of(&[json!(1)]);
    for bad in ["%FF=1", "v=%FF", "v=%zz", "v[gt]=%", "%=1"] {
        site.api.get(&list_path("c", bad)).fails_as(&[400]);
    }
    for odd in [
        "=1",
        "=",
        "&&&",
        "v",
        "v=",
        "v[in]=",
        "v[in]=,",
        "v[gt]=",
        "?v=1",
        "v==1",
        "v[gt]=NaN",
        "v=Infinity",
        "v=1e999",
    ] {
        let answer = site.api.get(&list_path("c", odd));
        assert!(matches!(answer.status, 200 | 400), "{odd}: {answer:?}");
    }
    let deep = vec!["a"; 2000].join(".");
    let answer = site.api.get(&list_path("c", &format!("{deep}=1")));
    assert!(answer.status == 400 || answer.is(200)["count"] == 0, "{answer:?}");
    let many = "v[ne]=2&".repeat(500);
    let answer = site.api.get(&list_path("c", &many));
    assert!(answer.status == 400 || answer.is(200)["count"] == 1, "{answer:?}");
}

#[test]
fn an_unknown_field_is_a_filter_and_not_ignored() {
    let site = site_of(&[json!(1), json!(2)]);
    assert_eq!(found(&site.api, "c", "nothing=1"), [""; 0]);
    assert_eq!(found(&site.api, "c", "lim=1"), [""; 0]);
    assert_eq!(found(&site.api, "c", "nothing[gt]=1"), [""; 0]);
    assert_eq!(found(&site.api, "c", "nothing[in]=1,2"), [""; 0]);
}

#[test]
fn a_collection_that_is_not_there_has_no_list() {
    let site = Site::start();
    site.api.get(&list_path("c", "")).fails(404, "not_found");
    define(&site.api, "p", &changelog("t", "c"));
    assert_eq!(list(&site.api, "c", "")["count"], 0);
}

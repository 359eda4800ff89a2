//! What the tests of the engine share.

pub mod stage;
pub mod switch;

/// Makes a test of each behaviour, on each kind of store.
macro_rules! behaviours {
    ($($suite:ident: $($behaviour:ident)*;)*) => {
        mod on_memory {
            $($(behaviours! { @test $suite $behaviour memory })*)*
        }
        mod on_disk {
            $($(behaviours! { @test $suite $behaviour disk })*)*
        }
        #[cfg(test)]
        const LISTED: &[&str] = &[$($(stringify!($behaviour),)*)*];
    };
    (@test $suite:ident $behaviour:ident $kind:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $behaviour() {
            let run = async { super::$suite::$behaviour(crate::support::stage::Stage::$kind().await).await };
            prombus_testkit::guarded(stringify!($behaviour), run).await;
        }
    };
}

/// A behaviour that is written and not listed would never run.
pub fn assert_all_listed(folder: &str, listed: &[&str]) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(folder);
    for file in std::fs::read_dir(folder).expect("the folder of this test") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
        for line in text.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
            let (name, rest) = line.split_once('(').expect("a function has arguments");
            let is_behaviour = rest.starts_with("s: Stage)") || rest.starts_with("mut s: Stage)");
            assert!(!is_behaviour || listed.contains(&name), "{name} is not listed");
        }
    }
}

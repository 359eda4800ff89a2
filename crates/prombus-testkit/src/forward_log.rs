//! Logs around another log, for tests: what they do themselves is written out, and all else is passed on by name.

/// Makes a type an [`EventLog`](prombus_core::EventLog). The named methods are those of its field, after `before`, if that is
/// given (a method of the type that may refuse reads); the others follow. None is passed on without being named, so that
/// no wrapper skips one.
///
/// ```ignore
/// forward_log! { Slow => inner after before_read: read kept topics;
///     async fn close(&self) {}
/// }
/// ```
#[macro_export]
macro_rules! forward_log {
    ($type:ty => $log:ident $(after $before:ident)?: $($name:ident)*; $($own:tt)*) => {
        $crate::forward_log! { @ [$type] [$log $($before)?] [$($own)*] $($name)* }
    };
    (@ [$type:ty] $log:tt [$($done:tt)*]) => {
        const _: () = {
            use $crate::core::*;
            use $crate::Uuid;
            use std::sync::Arc;

            #[$crate::async_trait]
            impl EventLog for $type {
                $($done)*
            }
        };
    };
    (@ $type:tt $log:tt $done:tt read $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done [read(request: ReadRequest) -> Page] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt kept $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done [kept(topic: &TopicRef, partition: Partition) -> Kept] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt offset_at $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done [offset_at(request: TsRequest) -> Offset] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt by_id $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done [by_id(topic: &TopicRef, id: Uuid) -> Option<Event>] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt latest_by_key $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done
            [latest_by_key(topic: &TopicRef, key: &str) -> Option<Event>] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt previous_by_key $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done
            [previous_by_key(request: PreviousRequest) -> Vec<Option<Event>>] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt history $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done [history(request: HistoryRequest) -> Vec<Event>] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt advance_horizon $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done [advance_horizon(topic: &TopicName, past: u64) -> u64] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt topic $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done [topic(name: &TopicName) -> Option<TopicState>] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt topics $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done [topics() -> Vec<TopicState>] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt cursor $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done [cursor(key: &CursorKey) -> Option<Cursor>] $($rest)* }
    };
    (@ $type:tt $log:tt $done:tt readers $($rest:ident)*) => {
        $crate::forward_log! { @read $type $log $done [readers(topic: &TopicName, prefix: &str) -> Vec<String>] $($rest)* }
    };
    (@read $type:tt [$log:ident $($before:ident)?] [$($done:tt)*]
        [$name:ident($($arg:ident: $of:ty),*) -> $answer:ty] $($rest:ident)*) => {
        $crate::forward_log! { @ $type [$log $($before)?] [$($done)*
            async fn $name(&self $(, $arg: $of)*) -> Result<$answer, ReadError> {
                $(self.$before().await?;)?
                self.$log.$name($($arg),*).await
            }
        ] $($rest)* }
    };
    (@ $type:tt [$log:ident $($before:ident)?] [$($done:tt)*] enqueue $($rest:ident)*) => {
        $crate::forward_log! { @ $type [$log $($before)?] [$($done)*
            async fn enqueue(&self, commit: Arc<Commit>) -> Result<Ticket, CommitError> {
                self.$log.enqueue(commit).await
            }
        ] $($rest)* }
    };
    (@ $type:tt [$log:ident $($before:ident)?] [$($done:tt)*] erase $($rest:ident)*) => {
        $crate::forward_log! { @ $type [$log $($before)?] [$($done)*
            async fn erase(&self) -> Result<(), CommitError> {
                self.$log.erase().await
            }
        ] $($rest)* }
    };
    (@ $type:tt [$log:ident $($before:ident)?] [$($done:tt)*] changed $($rest:ident)*) => {
        $crate::forward_log! { @ $type [$log $($before)?] [$($done)*
            async fn changed(&self, of: &Watched, after: Sequence) -> Sequence {
                self.$log.changed(of, after).await
            }
        ] $($rest)* }
    };
    (@ $type:tt [$log:ident $($before:ident)?] [$($done:tt)*] status $($rest:ident)*) => {
        $crate::forward_log! { @ $type [$log $($before)?] [$($done)*
            fn status(&self) -> StoreStatus {
                self.$log.status()
            }
        ] $($rest)* }
    };
    (@ $type:tt [$log:ident $($before:ident)?] [$($done:tt)*] close $($rest:ident)*) => {
        $crate::forward_log! { @ $type [$log $($before)?] [$($done)*
            async fn close(&self) {
                self.$log.close().await;
            }
        ] $($rest)* }
    };
}

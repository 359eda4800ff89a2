//! Macros for frequent calls.

/// Declares topics: the name, payload type and settings of each.
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// pub struct Order {
///     number: String,
/// }
///
/// prombus_client::topics! {
///     /// Orders as they come in.
///     pub ORDERS: Order = "shop.orders" { partitions: 8, retention_days: 3, keyed_by: |order| order.number.clone() };
///     PAYMENTS: u64 = "shop.payments";
/// }
///
/// assert_eq!((ORDERS.name(), ORDERS.config().partitions), ("shop.orders", Some(8)));
/// assert_eq!(PAYMENTS.config().partitions, None);
/// ```
#[macro_export]
macro_rules! topics {
    ($($(#[$meta:meta])* $vis:vis $name:ident: $type:ty = $topic:literal
        $({ $($setting:ident: $value:expr),* $(,)? })?;)*) => {
        $(
            $(#[$meta])*
            $vis const $name: $crate::Topic<$type> = $crate::Topic::<$type>::new($topic)$($(.$setting($value))*)?;
        )*
    };
}

/// Publishes a JSON literal over a [`Live`](crate::Live) or a [`Client`](crate::Client). The payload is written as for
/// `serde_json::json!`, and may be followed by fields of the event.
///
/// ```no_run
/// # async fn example(live: prombus_client::Live) -> Result<(), prombus_client::ClientError> {
/// use prombus_client::publish;
///
/// publish!(live, "process.state", {"status": "alive", "cpu": 12.5}).await?;
/// publish!(live, "process.state", {"status": "dead"}, key: "web1", sid: "s-17").await?;
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! publish {
    ($to:expr, $topic:expr, $payload:tt $(, $field:ident: $value:expr)* $(,)?) => {
        async {
            #[allow(unused_mut, reason = "only where fields are named")]
            let mut event = $crate::NewEvent::of(&$crate::serde_json::json!($payload))?;
            $(event.$field = ::core::option::Option::Some($value.into());)*
            $to.publish($topic, &event).await
        }
    };
}

/// Consumes a typed topic with a handler that may use `?` on any error and needs no `Ok(())`.
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)] pub struct Order { number: String }
/// # prombus_client::topics! { ORDERS: Order = "shop.orders"; }
/// # async fn example(live: prombus_client::Live) -> Result<(), prombus_client::ClientError> {
/// use prombus_client::{ConsumeOptions, subscribe};
///
/// let billing = subscribe!(live, ORDERS, "billing", |order| {
///     let number: u64 = order.number.parse()?;
///     println!("order {number}");
/// })
/// .await?;
///
/// // What the handler uses of its surroundings is named, and cloned for every call. Options go after the group, and the
/// // delivery is there for those who want it:
/// let (numbers, mut taken) = tokio::sync::mpsc::unbounded_channel();
/// let options = ConsumeOptions::earliest().with_concurrency(8);
/// let audit = subscribe!(live, ORDERS, "audit", options, clone(numbers), |order, delivery| {
///     numbers.send((order.number, delivery.event.offset))?;
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! subscribe {
    (@ $live:expr, $topic:expr, $group:expr, $options:expr, ($($name:ident)*), $payload:pat_param, $delivery:pat_param,
        $body:block) => {{
        $(let $name = ::core::clone::Clone::clone(&$name);)*
        async {
            $live
                .of(&$topic)
                .consume($group, $options, move |$payload, $delivery| {
                    $(let $name = ::core::clone::Clone::clone(&$name);)*
                    async move {
                        $body;
                        ::core::result::Result::<(), $crate::HandlerError>::Ok(())
                    }
                })
                .await
        }
    }};
    ($live:expr, $topic:expr, $group:expr, clone($($name:ident),*),
        |$payload:pat_param $(, $delivery:pat_param)?| $body:block) => {
        $crate::subscribe!($live, $topic, $group, $crate::ConsumeOptions::default(), clone($($name),*),
            |$payload $(, $delivery)?| $body)
    };
    ($live:expr, $topic:expr, $group:expr, |$payload:pat_param $(, $delivery:pat_param)?| $body:block) => {
        $crate::subscribe!($live, $topic, $group, $crate::ConsumeOptions::default(), clone(),
            |$payload $(, $delivery)?| $body)
    };
    ($live:expr, $topic:expr, $group:expr, $options:expr, clone($($name:ident),*), |$payload:pat_param| $body:block) => {
        $crate::subscribe!(@ $live, $topic, $group, $options, ($($name)*), $payload, _, $body)
    };
    ($live:expr, $topic:expr, $group:expr, $options:expr, clone($($name:ident),*),
        |$payload:pat_param, $delivery:pat_param| $body:block) => {
        $crate::subscribe!(@ $live, $topic, $group, $options, ($($name)*), $payload, $delivery, $body)
    };
    ($live:expr, $topic:expr, $group:expr, $options:expr,
        |$payload:pat_param $(, $delivery:pat_param)?| $body:block) => {
        $crate::subscribe!($live, $topic, $group, $options, clone(), |$payload $(, $delivery)?| $body)
    };
}

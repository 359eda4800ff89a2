//! Typed topics: name, payload type, key and settings of a topic in one place.

use crate::live::{ConsumeOptions, Consumer, Delivery, Live, PendingPublish, Publisher, PublisherOptions};
use crate::{
    Client, ClientError, FlushError, NewEvent, Published, SubscribeOptions, Subscription, TopicAnswer,
};
use prombus_wire::{SnapshotConfig, TopicPatch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::future::Future;
use std::marker::PhantomData;

/// Periodic snapshots of the latest event of each key.
pub type Snapshot = SnapshotConfig<&'static str>;

/// Settings of a topic. The hub decides about omitted ones.
pub type TopicConfig = TopicPatch<&'static str>;

/// A topic whose events have payloads of one type. Usable as a `const`:
///
/// ```
/// use prombus_client::Topic;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Order {
///     number: String,
///     total: u64,
/// }
///
/// const ORDERS: Topic<Order> =
///     Topic::new("shop.orders").partitions(8).retention_days(3).keyed_by(|order| order.number.clone());
/// ```
#[derive(Debug)]
pub struct Topic<T> {
    name: &'static str,
    config: TopicConfig,
    key: Option<fn(&T) -> String>,
    payload: PhantomData<fn() -> T>,
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Topic<T> {}

/// Declares the method of [`Topic`] that sets an option.
macro_rules! setting {
    ($(#[$doc:meta])* snapshot: $type:ty) => {
        $(#[$doc])* #[must_use] pub const fn snapshot(mut self, snapshot: Snapshot) -> Self {
            self.config.snapshot = Some(Some(snapshot));
            self
        }
    };
    ($(#[$doc:meta])* $name:ident: $type:ty) => {
        $(#[$doc])* #[must_use] pub const fn $name(mut self, $name: $type) -> Self {
            self.config.$name = Some($name);
            self
        }
    };
}

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr, $value:literal;)*) => {
        impl<T> Topic<T> {
            $(setting! { $(#[$doc])* $name: $type })*
        }
    };
}

prombus_wire::topic_options!(settings);

impl<T> Topic<T> {
    /// How many days to retain events; 0 for no limit.
    #[must_use]
    pub const fn retention_days(self, days: u32) -> Self {
        self.retention_ms(prombus_wire::topic::days_in_ms(days))
    }

    /// A topic with the hub's settings.
    pub const fn new(name: &'static str) -> Self {
        Self { name, config: TopicConfig::EMPTY, key: None, payload: PhantomData }
    }

    /// Sets the function that derives an event's key from its payload.
    #[must_use]
    pub const fn keyed_by(mut self, key: fn(&T) -> String) -> Self {
        self.key = Some(key);
        self
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its settings.
    pub const fn config(&self) -> &TopicConfig {
        &self.config
    }
}

impl<T: Serialize> Topic<T> {
    /// An event of the topic, with its key.
    pub fn event(&self, payload: &T) -> Result<NewEvent, ClientError> {
        let event = NewEvent::of(payload)?;
        Ok(match self.key {
            Some(key) => event.with_key(key(payload)),
            None => event,
        })
    }
}

impl Client {
    /// Creates a topic, or applies the declared settings. A topic that already has more partitions keeps them.
    pub async fn ensure<T>(&self, topic: &Topic<T>) -> Result<TopicAnswer, ClientError> {
        let mut config = topic.config;
        if let (Some(wanted), Some(found)) = (config.partitions, self.topic(topic.name).await?)
            && found.bounds.len() > wanted as usize
        {
            config.partitions = None;
        }
        self.put_topic(topic.name, &config).await
    }
}

impl Live {
    /// A typed topic over this connection.
    ///
    /// ```no_run
    /// # use prombus_client::{Topic, Live, ClientError, ConsumeOptions};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Order { number: String }
    /// # const ORDERS: Topic<Order> = Topic::new("shop.orders");
    /// # async fn example(live: Live) -> Result<(), ClientError> {
    /// live.of(&ORDERS).publish(&Order { number: "7".into() }).await?;
    /// let consumer = live
    ///     .of(&ORDERS)
    ///     .consume("billing", ConsumeOptions::earliest(), |order, _delivery| async move {
    ///         println!("order {}", order.number);
    ///         Ok::<(), ClientError>(())
    ///     })
    ///     .await?;
    /// # consumer.stop().await
    /// # }
    /// ```
    pub fn of<T>(&self, topic: &Topic<T>) -> TypedTopic<T> {
        TypedTopic { live: self.clone(), topic: *topic }
    }
}

/// A typed topic over a connection.
#[derive(Debug, Clone)]
pub struct TypedTopic<T> {
    live: Live,
    topic: Topic<T>,
}

impl<T: Serialize> TypedTopic<T> {
    /// Publishes one event.
    pub async fn publish(&self, payload: &T) -> Result<Published, ClientError> {
        self.live.publish(self.topic.name, &self.topic.event(payload)?).await
    }

    /// A publisher of many events.
    pub fn publisher(&self, options: PublisherOptions) -> TypedPublisher<T> {
        TypedPublisher { publisher: self.live.publisher(self.topic.name, options), topic: self.topic }
    }
}

impl<T: DeserializeOwned + Send + 'static> TypedTopic<T> {
    /// Consumes as a member of a group.
    pub async fn subscribe(
        &self,
        group: &str,
        options: SubscribeOptions,
    ) -> Result<TypedSubscription<T>, ClientError> {
        let subscription = self.live.subscribe(self.topic.name, group, options).await?;
        Ok(TypedSubscription { subscription, payload: PhantomData })
    }

    /// Consumes with a handler: see [`Live::consume`]. An event whose payload does not match the topic's type is
    /// nacked.
    pub async fn consume<H, F, E>(
        &self,
        group: &str,
        options: ConsumeOptions,
        handler: H,
    ) -> Result<Consumer, ClientError>
    where
        H: Fn(T, Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let handler = move |delivery: Delivery| {
            let handled = match delivery.payload::<T>() {
                Ok(payload) => Ok(handler(payload, delivery)),
                Err(error) => Err(error.to_string()),
            };
            async move { handled?.await.map_err(|error| error.to_string()) }
        };
        self.live.consume(self.topic.name, group, options, handler).await
    }
}

/// Publishes a stream of payloads of one type.
#[derive(Debug, Clone)]
pub struct TypedPublisher<T> {
    publisher: Publisher,
    topic: Topic<T>,
}

impl<T: Serialize> TypedPublisher<T> {
    /// See [`Publisher::send`].
    pub async fn send(&self, payload: &T) -> Result<PendingPublish, ClientError> {
        self.publisher.send(self.topic.event(payload)?).await
    }

    /// See [`Publisher::flush`].
    pub async fn flush(&self) -> Result<(), FlushError> {
        self.publisher.flush().await
    }
}

/// Deliveries whose payloads are of one type.
#[must_use = "dropping it ends it"]
#[derive(Debug)]
pub struct TypedSubscription<T> {
    subscription: Subscription,
    payload: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> TypedSubscription<T> {
    /// The next delivery with its payload, or with the reason why that does not match the type. `None` if there will be
    /// no more.
    pub async fn next(&mut self) -> Option<(Result<T, ClientError>, Delivery)> {
        let delivery = self.subscription.next().await?;
        Some((delivery.payload(), delivery))
    }

    /// Why there will be no more deliveries, unless that was requested.
    pub fn error(&self) -> Option<ClientError> {
        self.subscription.error()
    }

    /// The subscription without its type.
    pub fn into_inner(self) -> Subscription {
        self.subscription
    }
}

/// The error type of handlers of [`subscribe!`](crate::subscribe): converts from any error by `?`.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;
    use prombus_wire::{Durability, SchemaMode};
    use serde_json::json;

    #[derive(Serialize, serde::Deserialize)]
    struct Order {
        number: u64,
    }

    const ORDERS: Topic<Order> = Topic::new("shop.orders")
        .partitions(8)
        .retention_days(3)
        .durability(Durability::Interval)
        .snapshot(Snapshot { topic: "shop.orders.snapshot", every_ms: 30_000 })
        .schema(SchemaMode::Warn)
        .keyed_by(|order| order.number.to_string());

    #[test]
    fn only_what_was_named_is_set() {
        let expected = json!({"partitions": 8, "retention_ms": 259_200_000, "durability": "interval", "schema": "warn",
            "snapshot": {"topic": "shop.orders.snapshot", "every_ms": 30_000}});
        assert_eq!(serde_json::to_value(ORDERS.config()).unwrap(), expected);
        assert_eq!(serde_json::to_value(Topic::<Order>::new("t").config()).unwrap(), json!({}));
    }

    #[test]
    fn events_have_the_key_of_their_payload() {
        let event = ORDERS.event(&Order { number: 7 }).unwrap();
        assert_eq!((event.key.as_deref(), event.payload.get()), (Some("7"), r#"{"number":7}"#));
        assert_eq!(Topic::<Order>::new("t").event(&Order { number: 7 }).unwrap().key, None);
    }
}

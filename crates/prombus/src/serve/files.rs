//! How many files a hub may have open, and who gets them: each connection is one, and the store has a share.

use super::settings::{Settings, StoreChoice};
use prombus_store_disk::handles::share_of;
use rustix::process::{Resource, getrlimit, setrlimit};

/// What is open beside connections and the store's share: the listener, the runtime, the folder and its lock, files that
/// are being written, connections that are turned away.
const OTHERS: u64 = 48;
/// The connections to the members of a replica set: the driver has ten to each at most, and a few to watch them by.
const DATABASE_CONNECTIONS: usize = 64;
/// A hub takes at least so many connections, even where they leave nothing for others.
const LEAST_CONNECTIONS: u64 = 8;

/// Raises the limit on open files as far as the system lets it, because the usual one is low. Where that is not enough for
/// all connections, there are fewer: the store must not run out of files because of them.
pub fn share_files(settings: &mut Settings) {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "failed to raise the limit on open files");
    }
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let store = match settings.store {
        StoreChoice::Memory => 0,
        StoreChoice::Disk { .. } => share_of(Some(limit)),
        StoreChoice::MongoDb { .. } => DATABASE_CONNECTIONS,
    };
    let connections = connections_of(limit, store as u64);
    let most = &mut settings.gateway.max_connections;
    if *most > connections {
        tracing::warn!(
            "{connections} connections are served instead of {most}, because the system allows this process {limit} open \
             files; raise that limit (`ulimit -n`, LimitNOFILE=), or lower limits.connections"
        );
        *most = connections;
    }
}

/// How many connections there can be where so many files may be open, of which the store has some.
fn connections_of(limit: u64, store: u64) -> usize {
    let left = limit.saturating_sub(store + OTHERS).max(LEAST_CONNECTIONS);
    usize::try_from(left).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_files_are_for_connections() {
        for limit in [256, 1024, 65_536, 1 << 20] {
            let store = share_of(Some(limit)) as u64;
            assert!(connections_of(limit, store) as u64 > limit / 2, "{limit}");
        }
        assert_eq!(connections_of(16, share_of(Some(16)) as u64), 8);
    }
}

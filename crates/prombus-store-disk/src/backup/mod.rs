//! Backups: copying a data folder that is in use, and keeping such a copy up to date.
//!
//! On the hub, a copy is held as of one flushed commit ([`held`]). In the folder of the backup, a manifest (`BACKUP`) says
//! which files count ([`manifest`]). A file that it lists is never changed: what is new comes in beside, under names that
//! carry the number of the next generation, and counts as soon as the next manifest is in place ([`target`]). From then on
//! anyone may give it its own name and remove what is no longer listed, any number of times ([`settle`]): the next backup,
//! or a hub that opens the folder. So the folder can be opened at every moment, as what it was or as what it is to be.

pub mod fingerprint;
pub mod held;
pub mod manifest;
pub mod settle;
pub mod target;

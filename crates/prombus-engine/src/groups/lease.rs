//! Leases: who holds which event until when, and the token that says so.
//!
//! A token is good for one delivery only. It names the topic and the epoch in which that is at home on a hub, the seat that
//! the group has among those of the topic, and counts the deliveries from that seat. So whoever has a token knows where it
//! belongs without asking any group. Another epoch voids all tokens of the last; a group that is loaded anew goes on counting.

use hashbrown::{HashMap, HashSet};
use prombus_core::{Epoch, TopicNumber};
use roaring::RoaringTreemap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tokio::time::Instant;

/// For so many of the latest deliveries, at least, it is remembered how they were settled, so that a repeated call is known.
const REMEMBERED: u64 = 1 << 20;
/// Older ones are forgotten so many at a time.
const FORGOTTEN_AT_ONCE: u64 = 1 << 16;
/// The list of deadlines is tidied when it has so many entries more than there are leases.
const SPARE_DEADLINES: usize = 1_024;
/// The longest number, in digits.
const MAX_DIGITS: usize = 16;
/// What stands between the numbers of a token.
const BETWEEN: u8 = b'-';

/// Whose deliveries are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Session {
    /// The incarnation of the topic.
    pub topic: TopicNumber,
    /// The epoch in which it is at home on the hub.
    pub epoch: Epoch,
    /// The place of the group among those of the topic.
    pub seat: u32,
}

/// What settles a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken {
    /// The group, and for how long it has it.
    pub session: Session,
    /// Counts deliveries from the seat.
    pub number: u64,
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session: Session { topic, epoch, seat }, number } = self;
        write!(f, "{:x}-{:x}-{seat:x}-{number:x}", topic.0, epoch.0)
    }
}

impl LeaseToken {
    /// The incarnation of the topic.
    pub fn topic(&self) -> TopicNumber {
        self.session.topic
    }

    /// Appends the text of the token.
    pub fn write(self, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = |number: u64| {
            let count = (u64::BITS - (number | 1).leading_zeros()).div_ceil(4);
            (0..count).rev().map(move |n| DIGITS[(number >> (4 * n) & 15) as usize])
        };
        let Self { session: Session { topic, epoch, seat }, number } = self;
        for number in [topic.0.into(), epoch.0, seat.into()] {
            out.extend(digits(number));
            out.push(BETWEEN);
        }
        out.extend(digits(number));
    }
}

/// A text that is no lease of this hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotALease;

impl FromStr for LeaseToken {
    type Err = NotALease;

    fn from_str(text: &str) -> Result<Self, NotALease> {
        let mut numbers = text.as_bytes().split(|byte| *byte == BETWEEN).map(parse_hex);
        let mut next = || numbers.next().unwrap_or(Err(NotALease));
        let small = |number: u64| u32::try_from(number).map_err(|_| NotALease);
        let (topic, epoch, seat) = (TopicNumber(small(next()?)?), Epoch(next()?), small(next()?)?);
        let number = next()?;
        match numbers.next() {
            None => Ok(Self { session: Session { topic, epoch, seat }, number }),
            Some(_) => Err(NotALease),
        }
    }
}

/// Digits as the hub writes them: lower case, no sign, and no zeros in front, so that a lease has one name only.
fn parse_hex(digits: &[u8]) -> Result<u64, NotALease> {
    if digits.is_empty() || digits.len() > MAX_DIGITS || (digits.len() > 1 && digits[0] == b'0') {
        return Err(NotALease);
    }
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return Err(NotALease),
        };
        Ok(number << 4 | u64::from(value))
    })
}

/// One open delivery.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The partition of the event.
    pub partition: usize,
    /// Its offset.
    pub offset: u64,
    /// What waits for it, where something may.
    pub key: Option<u64>,
    /// Who holds it.
    pub member: Arc<str>,
    /// When it was given.
    pub given: Instant,
    /// When it ends.
    pub deadline: Instant,
}

/// How a delivery was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// It is done.
    Ack,
    /// It failed.
    Nack,
}

/// Deliveries that were made together, and so end together unless one is extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ending {
    deadline: Instant,
    first: u64,
    last: u64,
}

/// The open leases of a group.
pub struct Leases {
    session: Session,
    next: u64,
    open: HashMap<u64, Lease>,
    endings: BinaryHeap<Reverse<Ending>>,
    acked: RoaringTreemap,
    nacked: RoaringTreemap,
    /// With this number, old ones are forgotten.
    forgets_at: u64,
}

impl Leases {
    /// No leases; the next one has the number `next`.
    pub fn new(session: Session, next: u64) -> Self {
        Self {
            session,
            next,
            open: HashMap::new(),
            endings: BinaryHeap::new(),
            acked: RoaringTreemap::new(),
            nacked: RoaringTreemap::new(),
            forgets_at: next + FORGOTTEN_AT_ONCE,
        }
    }

    /// The number that the next lease will have.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Opens a lease. [`Leases::opened`] must follow when all of a delivery are open.
    pub fn open(&mut self, lease: Lease) -> LeaseToken {
        let token = LeaseToken { session: self.session, number: self.next };
        self.open.insert(self.next, lease);
        self.next += 1;
        token
    }

    /// Notes when the leases from number `first` on end.
    pub fn opened(&mut self, first: u64, deadline: Instant) {
        if first == self.next {
            return;
        }
        self.ends(Ending { deadline, first, last: self.next - 1 });
    }

    fn ends(&mut self, ending: Ending) {
        self.endings.push(Reverse(ending));
        if self.endings.len() > 2 * self.open.len() + SPARE_DEADLINES {
            self.tidy();
        }
    }

    /// Keeps one entry for each open lease at most, and none that is about others. More than half of them go with that,
    /// so what it costs is paid by those who have added them.
    fn tidy(&mut self) {
        let each =
            self.endings.drain().flat_map(|Reverse(e)| (e.first..=e.last).map(move |n| (e.deadline, n)));
        let is_true = |(at, n): &(Instant, u64)| self.open.get(n).is_some_and(|lease| lease.deadline == *at);
        let mut ends: Vec<(Instant, u64)> = each.filter(is_true).collect();
        ends.sort_unstable();
        // A lease may have been extended to the same moment any number of times.
        ends.dedup();
        let together = |a: &(Instant, u64), b: &(Instant, u64)| a.0 == b.0 && a.1 + 1 == b.1;
        let run = |run: &[(Instant, u64)]| {
            let (&(deadline, first), &(_, last)) = (run.first()?, run.last()?);
            Some(Reverse(Ending { deadline, first, last }))
        };
        self.endings = ends.chunk_by(together).filter_map(run).collect();
    }

    /// An open lease.
    pub fn get_mut(&mut self, token: LeaseToken) -> Option<&mut Lease> {
        if token.session != self.session {
            return None;
        }
        self.open.get_mut(&token.number)
    }

    /// All open leases.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Lease)> {
        self.open.iter().map(|(number, lease)| (*number, lease))
    }

    /// The number of the lease on an event, if one is open.
    pub fn on(&self, partition: usize, offset: u64) -> Option<u64> {
        self.iter().find(|(_, lease)| (lease.partition, lease.offset) == (partition, offset)).map(|(n, _)| n)
    }

    /// The numbers of the leases on any of these events, in one pass over all that are open.
    pub fn on_any(&self, events: &HashSet<(usize, u64)>) -> Vec<u64> {
        if events.is_empty() {
            return Vec::new();
        }
        let on = self.iter().filter(|(_, lease)| events.contains(&(lease.partition, lease.offset)));
        on.map(|(number, _)| number).collect()
    }

    /// Closes a lease that nobody settled.
    pub fn close(&mut self, number: u64) -> Option<Lease> {
        self.open.remove(&number)
    }

    /// Closes a lease because of what its holder says.
    pub fn settle(&mut self, token: LeaseToken, verb: Verb) -> Option<Lease> {
        if token.session != self.session {
            return None;
        }
        let lease = self.open.remove(&token.number)?;
        self.remember(token.number, verb);
        Some(lease)
    }

    fn remember(&mut self, number: u64, verb: Verb) {
        self.settled(verb).insert(number);
        if number >= self.forgets_at {
            let old = ..number.saturating_sub(REMEMBERED);
            self.acked.remove_range(old);
            self.nacked.remove_range(old);
            self.forgets_at = number + FORGOTTEN_AT_ONCE;
        }
    }

    /// A lease that a commit has settled.
    pub fn note_acked(&mut self, token: LeaseToken) {
        if token.session == self.session {
            self.remember(token.number, Verb::Ack);
        }
    }

    /// A lease that was taken out is open again. Its end may have passed meanwhile.
    pub fn reopen(&mut self, token: LeaseToken, lease: Lease) {
        let deadline = lease.deadline;
        self.open.insert(token.number, lease);
        self.ends(Ending { deadline, first: token.number, last: token.number });
    }

    /// What was said of a lease was not accepted after all.
    pub fn take_back(&mut self, token: LeaseToken) {
        self.acked.remove(token.number);
        self.nacked.remove(token.number);
    }

    /// What all its tokens name.
    pub fn session(&self) -> Session {
        self.session
    }

    /// Whether this was said of the lease before, and taken.
    pub fn was(&mut self, token: LeaseToken, verb: Verb) -> bool {
        token.session == self.session && self.settled(verb).contains(token.number)
    }

    fn settled(&mut self, verb: Verb) -> &mut RoaringTreemap {
        match verb {
            Verb::Ack => &mut self.acked,
            Verb::Nack => &mut self.nacked,
        }
    }

    /// Moves the end of an open lease.
    pub fn extend(&mut self, token: LeaseToken, deadline: Instant) -> bool {
        let Some(lease) = self.get_mut(token) else { return false };
        if lease.deadline == deadline {
            return true;
        }
        lease.deadline = deadline;
        self.ends(Ending { deadline, first: token.number, last: token.number });
        true
    }

    /// When the next lease may end; not before it does.
    pub fn next_ending(&self) -> Option<Instant> {
        self.endings.peek().map(|Reverse(ending)| ending.deadline)
    }

    /// Closes the leases that have ended, in the order in which they were given.
    pub fn ended(&mut self, now: Instant) -> Vec<Lease> {
        let mut ended = Vec::new();
        while let Some(Reverse(ending)) = self.endings.peek().copied()
            && ending.deadline <= now
        {
            self.endings.pop();
            for number in ending.first..=ending.last {
                // One that was extended has another entry for its new end.
                if self.open.get(&number).is_some_and(|lease| lease.deadline <= now) {
                    ended.extend(self.open.remove(&number).map(|lease| (number, lease)));
                }
            }
        }
        ended.sort_unstable_by_key(|(number, _)| *number);
        ended.into_iter().map(|(_, lease)| lease).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const SESSION: Session = Session { topic: TopicNumber(1), epoch: Epoch(2), seat: 3 };

    fn lease(offset: u64, deadline: Instant) -> Lease {
        Lease { partition: 0, offset, key: None, member: "m".into(), given: deadline, deadline }
    }

    fn offsets(leases: &[Lease]) -> Vec<u64> {
        leases.iter().map(|lease| lease.offset).collect()
    }

    #[test]
    fn leases_end_when_their_time_is_over() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut leases = Leases::new(SESSION, 0);
        let tokens: Vec<LeaseToken> = (0..4).map(|offset| leases.open(lease(offset, at(10)))).collect();
        leases.opened(0, at(10));
        assert!(leases.extend(tokens[1], at(30)));
        assert!(leases.settle(tokens[2], Verb::Ack).is_some());
        assert!(leases.ended(at(9)).is_empty());
        assert_eq!(offsets(&leases.ended(at(10))), [0, 3]);
        assert!(!leases.extend(tokens[0], at(99)), "it is over");
        assert_eq!(leases.next_ending(), Some(at(30)));
        assert_eq!(offsets(&leases.ended(at(30))), [1]);
        assert_eq!((leases.open.len(), leases.next_ending()), (0, None));
    }

    #[test]
    fn a_shorter_lease_ends_sooner() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut leases = Leases::new(SESSION, 0);
        let token = leases.open(lease(0, at(50)));
        leases.opened(0, at(50));
        assert!(leases.extend(token, at(5)));
        assert_eq!(offsets(&leases.ended(at(5))), [0]);
        assert!(leases.ended(at(50)).is_empty());
    }

    #[test]
    fn only_the_same_verb_can_be_repeated() {
        let mut leases = Leases::new(SESSION, 0);
        let token = leases.open(lease(0, Instant::now()));
        assert!(leases.settle(token, Verb::Ack).is_some());
        assert!(leases.settle(token, Verb::Nack).is_none());
        assert!(leases.was(token, Verb::Ack) && !leases.was(token, Verb::Nack));
        let other = LeaseToken { session: Session { epoch: Epoch(9), ..SESSION }, ..token };
        assert!(!leases.was(other, Verb::Ack) && leases.settle(other, Verb::Ack).is_none());
    }

    #[test]
    fn deadlines_do_not_pile_up() {
        let mut leases = Leases::new(SESSION, 0);
        let deadline = Instant::now();
        for n in 0..10_000 {
            let token = leases.open(lease(n, deadline));
            leases.opened(n, deadline);
            assert!(leases.settle(token, Verb::Ack).is_some());
        }
        let token = leases.open(lease(0, deadline));
        for ms in 0..10_000 {
            assert!(leases.extend(token, deadline + Duration::from_millis(ms)));
        }
        assert!(leases.endings.len() <= SPARE_DEADLINES + 3, "{}", leases.endings.len());
    }

    /// So many that a look at each of them for each of them would take hours.
    const MANY: u64 = 1_000_000;
    const FEWER: u64 = MANY / 10;

    #[test]
    fn extensions_to_the_same_moment_do_not_pile_up() {
        let deadline = Instant::now();
        let later = deadline + Duration::from_secs(1);
        for to in [[later, later], [later, deadline]] {
            let mut leases = Leases::new(SESSION, 0);
            let token = leases.open(lease(0, deadline));
            leases.opened(0, deadline);
            for n in 0..MANY as usize {
                assert!(leases.extend(token, to[n % 2]));
            }
            assert!(leases.endings.len() <= SPARE_DEADLINES + 3, "{}", leases.endings.len());
            assert_eq!(offsets(&leases.ended(later)), [0]);
        }
    }

    #[test]
    fn many_leases_that_move_together_end_together() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut leases = Leases::new(SESSION, 0);
        let tokens: Vec<LeaseToken> = (0..FEWER).map(|n| leases.open(lease(n, at(10)))).collect();
        leases.opened(0, at(10));
        for to in [20, 10, 20, 30, 20, 10, 10, 20, 30] {
            tokens.iter().for_each(|token| assert!(leases.extend(*token, at(to))));
        }
        assert!(leases.endings.len() <= 2 * tokens.len() + SPARE_DEADLINES + 1);
        assert!(leases.ended(at(29)).is_empty());
        assert_eq!(offsets(&leases.ended(at(30))), (0..FEWER).collect::<Vec<_>>());
    }

    #[test]
    fn one_lease_that_is_left_of_a_delivery_is_not_searched_for_again() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut leases = Leases::new(SESSION, 0);
        let tokens: Vec<LeaseToken> = (0..FEWER).map(|n| leases.open(lease(n, at(10)))).collect();
        leases.opened(0, at(10));
        let (last, others) = tokens.split_last().unwrap();
        others[1..].iter().for_each(|token| assert!(leases.settle(*token, Verb::Ack).is_some()));
        for n in 0..FEWER {
            assert!(leases.extend(tokens[0], at(20 + n % 2)));
        }
        assert_eq!(offsets(&leases.ended(at(10))), [FEWER - 1]);
        assert!(!leases.extend(*last, at(20)));
        assert_eq!(offsets(&leases.ended(at(21))), [0]);
    }

    #[test]
    fn what_commits_have_settled_does_not_pile_up() {
        let mut leases = Leases::new(SESSION, 0);
        let many = REMEMBERED + 2 * FORGOTTEN_AT_ONCE;
        for number in 0..many {
            leases.note_acked(LeaseToken { session: leases.session, number });
        }
        let was = |leases: &mut Leases, number| {
            leases.was(LeaseToken { session: leases.session, number }, Verb::Ack)
        };
        assert!(leases.acked.len() <= REMEMBERED + FORGOTTEN_AT_ONCE, "{}", leases.acked.len());
        assert!(!was(&mut leases, 0) && was(&mut leases, many - REMEMBERED) && was(&mut leases, many - 1));
    }

    proptest! {
        #[test]
        fn tokens_survive_their_text(topic: u32, epoch: u64, seat: u32, number: u64) {
            let session = Session { topic: TopicNumber(topic), epoch: Epoch(epoch), seat };
            let token = LeaseToken { session, number };
            prop_assert_eq!(token.to_string().parse(), Ok(token));
            let mut text = Vec::new();
            token.write(&mut text);
            prop_assert_eq!(text, token.to_string().into_bytes());
        }

        #[test]
        fn any_text_is_a_token_or_not(text in "(\\PC{0,40}|[0-9a-f-]{0,40}|([0-9a-f]{1,17}-){2,4}[0-9a-f]{1,17})") {
            if let Ok(token) = text.parse::<LeaseToken>() {
                prop_assert_eq!(token.to_string(), text);
            }
        }
    }
}

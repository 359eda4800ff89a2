//! UUIDv7 ids (RFC 9562) that only grow, also within a millisecond and when the clock steps back.

use uuid::Uuid;

/// The 74 bits of a UUIDv7 that are not time, version or variant.
const RANDOM_BITS: u32 = 74;

/// Makes ids for one store. Feed it the greatest id of an earlier run with [`IdMaker::resume_after`].
#[derive(Debug)]
pub struct IdMaker {
    /// Time (48 bits) and the random part (74 bits) of the last id, without version and variant.
    last: u128,
    random: fastrand::Rng,
}

impl IdMaker {
    /// A maker whose randomness starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { last: 0, random: fastrand::Rng::with_seed(seed) }
    }

    /// Makes all further ids greater than `id`.
    pub fn resume_after(&mut self, id: Uuid) {
        self.last = self.last.max(squeeze(id));
    }

    /// An id for an event that is committed at `now_ms`, greater than every earlier one.
    pub fn next(&mut self, now_ms: u64) -> Uuid {
        let now = u128::from(now_ms & 0xffff_ffff_ffff) << RANDOM_BITS;
        self.last = if now >> RANDOM_BITS > self.last >> RANDOM_BITS {
            // The top random bit stays clear, so that a millisecond never runs out of room to count up.
            now | (self.random.u128(..) >> (128 - RANDOM_BITS + 1))
        } else {
            self.last + 1 + u128::from(self.random.u32(..))
        };
        spread(self.last)
    }
}

/// Puts version and variant between the bits.
fn spread(squeezed: u128) -> Uuid {
    let time = squeezed >> RANDOM_BITS;
    let high = (squeezed >> 62) & 0xfff;
    let low = squeezed & ((1 << 62) - 1);
    Uuid::from_u128(time << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
}

fn squeeze(id: Uuid) -> u128 {
    let bits = id.as_u128();
    (bits >> 80) << RANDOM_BITS | ((bits >> 64) & 0xfff) << 62 | bits & ((1 << 62) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_only_grow_whatever_the_clock_does(times in prop::collection::vec(0u64..1 << 48, 1..200), seed: u64) {
            let mut maker = IdMaker::new(seed);
            let mut last = Uuid::nil();
            for now in times {
                for _ in 0..3 {
                    let id = maker.next(now);
                    prop_assert!(id > last);
                    prop_assert_eq!(id.get_version_num(), 7);
                    prop_assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
                    last = id;
                }
            }
        }

        #[test]
        fn a_new_maker_goes_on_after_the_old_one(now in 1u64..1 << 48, seed: u64) {
            let last = IdMaker::new(seed).next(now);
            let mut next = IdMaker::new(seed ^ 1);
            next.resume_after(last);
            prop_assert!(next.next(now - 1) > last);
        }
    }

    #[test]
    fn the_time_can_be_read_from_the_id() {
        assert_eq!(IdMaker::new(1).next(1_754_683_200_123).as_u128() >> 80, 1_754_683_200_123);
    }
}

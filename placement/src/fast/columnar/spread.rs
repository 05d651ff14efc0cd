//! How many cells have less of an amount than another: places without a sort.

/// Buckets of equal width; an empty pool has few different amounts, a full one many.
const BUCKETS: usize = 1024;
/// The bucket of a cell that is not counted.
const NONE: u16 = u16::MAX;

/// Cells in buckets by an amount.
pub(super) struct Spread {
    low: i64,
    scale: f64,
    /// By slot.
    bucket_of: Vec<u16>,
    counts: Vec<u32>,
    /// By bucket: no cell in it has less or more; they stay when cells leave.
    limits: Vec<(i64, i64)>,
}

/// How many of the cells that take part come before each bucket.
#[derive(Default)]
pub(super) struct Before {
    /// By bucket, and the sum of all at the end.
    sums: Vec<u32>,
}

impl Spread {
    pub(super) fn new(slots: usize, amounts: impl Iterator<Item = i64> + Clone) -> Self {
        let low = amounts.clone().min().unwrap_or(0).min(0);
        let high = amounts.max().unwrap_or(0).max(low);
        Self {
            low,
            // an amount that grows beyond is in the last bucket
            scale: (BUCKETS - 1) as f64 / (high as f64 - low as f64).max(1.0),
            bucket_of: vec![NONE; slots],
            counts: vec![0; BUCKETS],
            limits: vec![(i64::MAX, i64::MIN); BUCKETS],
        }
    }

    /// Never lower for more.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to BUCKETS - 1
    fn bucket(&self, amount: i64) -> u16 {
        let place = (amount as f64 - self.low as f64) * self.scale;
        place.clamp(0.0, (BUCKETS - 1) as f64) as u16
    }

    /// The cell has this amount now; none = it is not counted.
    pub(super) fn set(&mut self, slot: u32, amount: Option<i64>) {
        let bucket = amount.map_or(NONE, |amount| self.bucket(amount));
        let old = std::mem::replace(&mut self.bucket_of[slot as usize], bucket);
        if old != NONE {
            self.counts[usize::from(old)] -= 1;
        }
        if let Some(amount) = amount {
            self.counts[usize::from(bucket)] += 1;
            let limits = &mut self.limits[usize::from(bucket)];
            *limits = (limits.0.min(amount), limits.1.max(amount));
        }
    }

    /// Counts all but these cells, which are counted here.
    pub(super) fn count(&self, without: &[u32], before: &mut Before) {
        let sums = &mut before.sums;
        sums.clear();
        sums.extend_from_slice(&self.counts);
        for slot in without {
            sums[usize::from(self.bucket_of[*slot as usize])] -= 1;
        }
        let mut sum = 0;
        for count in &mut *sums {
            sum += std::mem::replace(count, sum);
        }
        sums.push(sum);
    }

    /// The least and the most that the mean place of a cell can be among those counted, from the lowest amount on.
    pub(super) fn places(&self, slot: u32, before: &Before) -> (f64, f64) {
        let bucket = usize::from(self.bucket_of[slot as usize]);
        let first = f64::from(before.sums[bucket]);
        let last = f64::from(before.sums[bucket + 1]) - 1.0;
        let (low, high) = self.limits[bucket];
        if low == high {
            let mean = f64::midpoint(first, last);
            (mean, mean)
        } else {
            (first, last)
        }
    }

    /// How many cells have less than this one, and how many as much. `amount` gives that of a slot, none of a
    /// cell that does not take part.
    pub(super) fn place(
        &self,
        slot: u32,
        before: &Before,
        amount: impl Fn(u32) -> Option<i64>,
    ) -> (u32, u32) {
        let number = self.bucket_of[slot as usize];
        let bucket = usize::from(number);
        let (mut less, mut equal) = (before.sums[bucket], 0);
        if self.limits[bucket].0 == self.limits[bucket].1 {
            return (less, before.sums[bucket + 1] - less);
        }
        let Some(own) = amount(slot) else {
            return (less, equal);
        };
        for (start, chunk) in (0..).step_by(32).zip(self.bucket_of.chunks(32)) {
            // most chunks have none: found several at a time
            let there = chunk
                .iter()
                .fold(0, |n, bucket| n + u16::from(*bucket == number));
            if there == 0 {
                continue;
            }
            for (other, _) in (start..).zip(chunk).filter(|(_, b)| **b == number) {
                if let Some(amount) = amount(other) {
                    less += u32::from(amount < own);
                    equal += u32::from(amount == own);
                }
            }
        }
        (less, equal)
    }
}

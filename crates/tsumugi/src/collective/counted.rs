//! What a switch box can count: barriers, and reductions of a few numbers, as words that it combines exactly.
//!
//! Integers are combined by the box itself: what is to be ordered is mapped to unsigned numbers that are ordered alike. Floating-point
//! sums, products and functions of the program's are not: of those the box collects the operands, each participant's in a word of its
//! own, and every participant combines them along the tree of [`super::algorithms`]. Either way the result is the same to the last bit
//! as that of messages.

use super::algorithms::fold_all;
use super::call::{Call, Collective};
use super::element::ElementKind;
use super::reduction::{Combine, ReductionKind};
use super::schedule::Position;
use tsumugi_wire::group::{Operation, WORDS_MAX};

/// How numbers become words and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Map {
    /// As they are, without what is beyond their length.
    Plain,
    /// Signed ones: the least becomes 0.
    Signed,
    /// 1 if it is not 0.
    Truth,
    /// Floating point, ordered; what is no number becomes the least word, or the greatest.
    Ordered { nan: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// The box combines.
    Direct(Operation, Map),
    /// The box collects, and participants combine.
    Collected,
}

/// How an operation is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    plan: Plan,
    /// Length of a number, bytes; 0 in a barrier.
    bytes: usize,
    kind: Option<ElementKind>,
    /// Numbers of each participant.
    count: usize,
}

impl Counted {
    /// How a box counts an operation among so many participants; `None`: it cannot.
    pub(super) fn of(call: &Call, size: usize) -> Option<Counted> {
        let barrier =
            Counted { plan: Plan::Direct(Operation::None, Map::Plain), bytes: 0, kind: None, count: 0 };
        match call.operation {
            Collective::Barrier => return Some(barrier),
            Collective::Allreduce => {}
            _ => return None,
        }
        let (kind, reduction) = (call.element?, call.reduction?);
        let bytes = kind.bytes();
        let count = usize::try_from(call.bytes).ok()? / bytes;
        let plan = direct(kind, reduction).unwrap_or(Plan::Collected);
        let words = if plan == Plan::Collected { count.checked_mul(size)? } else { count };
        (1..=WORDS_MAX).contains(&words).then_some(Counted { plan, bytes, kind: Some(kind), count })
    }

    /// What the box is to do.
    pub(super) fn operation(&self) -> Operation {
        match self.plan {
            Plan::Direct(operation, _) => operation,
            Plan::Collected => Operation::Or,
        }
    }

    /// The words that a participant contributes with these data, and how many there are.
    pub(super) fn contribute(&self, me: Position, data: &[u8]) -> ([u64; WORDS_MAX], usize) {
        let mut words = [0; WORDS_MAX];
        let (first, all) = match self.plan {
            Plan::Direct(..) => (0, self.count),
            Plan::Collected => (me.rank * self.count, me.size * self.count),
        };
        for (word, number) in words[first..].iter_mut().zip(data.chunks_exact(self.bytes.max(1))) {
            *word = match self.plan {
                Plan::Direct(_, map) => self.encode(map, number),
                Plan::Collected => word_of(number),
            };
        }
        (words, all)
    }

    /// The result, as bytes, of what the box has made of all contributions.
    pub(super) fn result(
        &self,
        me: Position,
        words: &[u64; WORDS_MAX],
        combine: Option<&Combine>,
    ) -> Vec<u8> {
        let bytes = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()[..self.bytes].to_vec()).collect()
        };
        match self.plan {
            Plan::Direct(_, map) => {
                let mut out = Vec::with_capacity(self.count * self.bytes);
                for word in &words[..self.count] {
                    out.extend_from_slice(&self.decode(map, *word).to_le_bytes()[..self.bytes]);
                }
                out
            }
            Plan::Collected => {
                let operands = words[..me.size * self.count].chunks(self.count).map(bytes).collect();
                fold_all(operands, combine)
            }
        }
    }

    fn encode(&self, map: Map, number: &[u8]) -> u64 {
        let word = word_of(number);
        match map {
            Map::Plain => word,
            Map::Truth => u64::from(word != 0),
            Map::Signed => sign_extended(word, self.bytes) ^ SIGN,
            Map::Ordered { nan } => {
                let (value, sign) = match self.kind {
                    Some(ElementKind::F32) => (f64::from(f32::from_bits(word as u32)), 1 << 31),
                    _ => (f64::from_bits(word), SIGN),
                };
                match () {
                    () if value.is_nan() => nan,
                    () if word & sign != 0 => !word & (sign | (sign - 1)),
                    () => word | sign,
                }
            }
        }
    }

    fn decode(&self, map: Map, word: u64) -> u64 {
        match map {
            Map::Plain | Map::Truth => word,
            Map::Signed => word ^ SIGN,
            Map::Ordered { nan } => {
                let (sign, is_nan) = match self.kind {
                    Some(ElementKind::F32) => (1 << 31, u64::from(f32::NAN.to_bits())),
                    _ => (SIGN, f64::NAN.to_bits()),
                };
                match () {
                    () if word == nan => is_nan,
                    () if word & sign != 0 => word & !sign,
                    () => !word & (sign | (sign - 1)),
                }
            }
        }
    }
}

const SIGN: u64 = 1 << 63;

fn direct(kind: ElementKind, reduction: ReductionKind) -> Option<Plan> {
    use ElementKind::{F32, F64, I32, I64};
    let is_float = matches!(kind, F32 | F64);
    let ordered = |nan| match kind {
        F32 | F64 => Map::Ordered { nan },
        I32 | I64 => Map::Signed,
        _ => Map::Plain,
    };
    let (operation, map) = match reduction {
        ReductionKind::Min => (Operation::Min, ordered(0)),
        ReductionKind::Max => (Operation::Max, ordered(u64::MAX)),
        _ if is_float => return None,
        ReductionKind::Sum => (Operation::Sum, Map::Plain),
        ReductionKind::Band => (Operation::And, Map::Plain),
        ReductionKind::Bor => (Operation::Or, Map::Plain),
        ReductionKind::Bxor => (Operation::Xor, Map::Plain),
        ReductionKind::Land => (Operation::And, Map::Truth),
        ReductionKind::Lor => (Operation::Or, Map::Truth),
        _ => return None,
    };
    Some(Plan::Direct(operation, map))
}

/// A number of up to eight bytes, little-endian, with zeros before it.
fn word_of(number: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..number.len()].copy_from_slice(number);
    u64::from_le_bytes(bytes)
}

fn sign_extended(word: u64, bytes: usize) -> u64 {
    let unused = 64 - 8 * bytes as u32;
    (((word << unused) as i64) >> unused) as u64
}

#[cfg(test)]
mod tests {
    use super::super::element::{Element, Integer, elements_in, put_all};
    use super::super::reduction::Reduction;
    use super::*;
    use proptest::prelude::*;

    /// What a box makes of everybody's data, and what messages make of them.
    fn both<T: Element>(reduction: &Reduction<T>, data: &[Vec<T>]) -> Option<(Vec<u8>, Vec<u8>)> {
        let size = data.len();
        let call = Call {
            operation: Collective::Allreduce,
            element: Some(T::KIND),
            reduction: Some(reduction.kind()),
            function: 0,
            root: None,
            bytes: (data[0].len() * T::BYTES) as u64,
        };
        let counted = Counted::of(&call, size)?;
        let bytes: Vec<Vec<u8>> = data
            .iter()
            .map(|data| {
                let mut bytes = vec![0; data.len() * T::BYTES];
                put_all(data, &mut bytes);
                bytes
            })
            .collect();
        let contributions = bytes.iter().enumerate().map(|(rank, bytes)| {
            let (words, count) = counted.contribute(Position { rank, size }, bytes);
            assert!(words[count..].iter().all(|word| *word == 0));
            words
        });
        let combined = contributions
            .reduce(|sum, words| std::array::from_fn(|at| counted.operation().combine(sum[at], words[at])))?;
        let combine = reduction.combine();
        let result = counted.result(Position { rank: 0, size }, &combined, Some(&combine));
        assert_eq!(elements_in::<T>(&result).len(), data[0].len());
        Some((result, fold_all(bytes, Some(&combine))))
    }

    fn integers<T: Integer>(data: &[Vec<T>]) -> usize {
        let all = [
            Reduction::sum(),
            Reduction::product(),
            Reduction::min(),
            Reduction::max(),
            Reduction::band(),
            Reduction::bor(),
            Reduction::bxor(),
            Reduction::land(),
            Reduction::lor(),
            Reduction::new("left", |left, _| left),
        ];
        all.iter()
            .filter(|reduction| {
                both(reduction, data).is_some_and(|(one, other)| {
                    assert_eq!(one, other, "{reduction:?} of {data:?}");
                    true
                })
            })
            .count()
    }

    fn floats<T: Element>(data: &[Vec<T>]) -> usize {
        let all = [Reduction::sum(), Reduction::product(), Reduction::min(), Reduction::max()];
        all.iter()
            .filter(|reduction| {
                both(reduction, data).is_some_and(|(one, other)| {
                    assert_eq!(one, other, "{reduction:?} of {data:?}");
                    true
                })
            })
            .count()
    }

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), 0..3u64, Just(u64::MAX), Just(SIGN), Just(SIGN - 1)]
    }

    fn float() -> impl Strategy<Value = f64> {
        let special =
            [0.0, -0.0, 1.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
        prop_oneof![any::<f64>(), prop::sample::select(special.to_vec())]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_box_counts_as_messages_do(
            (size, count) in (2usize..40, 1usize..10),
            numbers in prop::collection::vec(number(), 400),
            values in prop::collection::vec(float(), 400),
        ) {
            let of = |at: usize, to: usize| at * count..at * count + to;
            let all = |to: usize| (0..size).map(move |rank| of(rank, to));
            let mut counted = 0;
            counted += integers::<u64>(&all(count).map(|its| numbers[its].to_vec()).collect::<Vec<_>>());
            counted += integers::<i64>(
                &all(count).map(|its| numbers[its].iter().map(|n| *n as i64).collect()).collect::<Vec<_>>());
            counted += integers::<i32>(
                &all(count).map(|its| numbers[its].iter().map(|n| *n as i32).collect()).collect::<Vec<_>>());
            counted += integers::<u8>(
                &all(count).map(|its| numbers[its].iter().map(|n| *n as u8).collect()).collect::<Vec<_>>());
            counted += floats::<f64>(&all(count).map(|its| values[its].to_vec()).collect::<Vec<_>>());
            counted += floats::<f32>(
                &all(count).map(|its| values[its].iter().map(|n| *n as f32).collect()).collect::<Vec<_>>());
            let direct = if count <= WORDS_MAX { 4 * 8 + 2 * 2 } else { 0 };
            let collected = if size * count <= WORDS_MAX { 4 * 2 + 2 * 2 } else { 0 };
            prop_assert_eq!(counted, direct + collected);
        }
    }
}

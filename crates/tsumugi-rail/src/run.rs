//! Runs: packets that the kernel, or the NIC, can cut out of one long piece.

use crate::Packet;

/// Most packets of a run (`UDP_MAX_SEGMENTS`, include/linux/udp.h, before 6.9 raised it).
pub(crate) const SEGMENTS_MAX: usize = 64;

/// How many packets at the start of `burst` one segmented send of at most `bytes_max` can carry: equally long ones,
/// and one shorter after them.
pub(crate) fn run_length(burst: &[Packet<'_>], bytes_max: usize) -> usize {
    let segment = burst[0].bytes();
    if segment == 0 {
        return 1;
    }
    let most = (bytes_max / segment).clamp(1, SEGMENTS_MAX).min(burst.len());
    let equal = burst[..most].iter().take_while(|packet| packet.bytes() == segment).count();
    let one_shorter = burst[..most].get(equal).is_some_and(|packet| (1..segment).contains(&packet.bytes()));
    equal + usize::from(one_shorter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_is_what_the_kernel_can_segment(
            sizes in proptest::collection::vec(
                prop_oneof![Just(1472usize), Just(100), Just(9000), 0usize..3000],
                1..200,
            ),
            bytes_max in 9000usize..70_000,
        ) {
            let bytes = [0; 9000];
            let burst: Vec<Packet<'_>> = sizes.iter().map(|size| {
                let (head, body) = bytes[..*size].split_at(size / 3);
                Packet { head, body }
            }).collect();
            let run = run_length(&burst, bytes_max);
            prop_assert!((1..=SEGMENTS_MAX).contains(&run));
            prop_assert!(sizes[..run].iter().sum::<usize>() <= bytes_max);
            prop_assert!(sizes[..run - 1].iter().all(|size| *size == sizes[0]));
            prop_assert!(sizes[run - 1] <= sizes[0]);
            // And it is the longest such run.
            if let Some(next) = sizes.get(run) {
                let fits = run < SEGMENTS_MAX && sizes[..=run].iter().sum::<usize>() <= bytes_max;
                let ended = sizes[run - 1] < sizes[0] || *next > sizes[0] || *next == 0;
                let full = (run + 1) * sizes[0] > bytes_max; // a shorter last one is not squeezed in
                prop_assert!(!fits || ended || full, "{run} of {sizes:?}");
            }
        }
    }
}

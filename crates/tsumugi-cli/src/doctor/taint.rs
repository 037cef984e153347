//! What the kernel says of itself: whether it is tainted, and why.

use std::fs;

use super::{Finding, Part};

const CHECK: &str = "kernel taint";
const FILE: &str = "/proc/sys/kernel/tainted";

/// What a bit tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// What the kernel was given or how it was built: nothing went wrong.
    Information,
    /// Something went wrong in the kernel or in the machine.
    Fault,
}

use Weight::{Fault, Information};

/// The bits from 0 on, with their letters (Documentation/admin-guide/tainted-kernels.rst).
const BITS: [(char, Weight, &str); 20] = [
    ('P', Information, "a proprietary module was loaded"),
    ('F', Information, "a module was loaded by force"),
    ('S', Information, "the hardware is out of specification"),
    ('R', Information, "a module was unloaded by force"),
    ('M', Fault, "the processor reported a machine check"),
    ('B', Fault, "a page was in a bad state"),
    ('U', Information, "a program asked for it"),
    ('D', Fault, "the kernel died: an Oops or a BUG"),
    ('A', Information, "an ACPI table was replaced"),
    ('W', Fault, "the kernel issued a warning"),
    ('C', Information, "a staging driver was loaded"),
    ('I', Information, "a firmware bug was worked around"),
    ('O', Information, "an out-of-tree module was loaded"),
    ('E', Information, "an unsigned module was loaded"),
    ('L', Fault, "a CPU was locked up for long (soft lockup)"),
    ('K', Information, "the kernel was patched live"),
    ('X', Information, "set by the distribution"),
    ('T', Information, "structures are laid out at random"),
    ('N', Information, "a test inside the kernel was run"),
    ('J', Information, "a firmware was changed by fwctl"),
];

/// Whether something went wrong in this kernel since it was started.
pub(super) fn kernel_taint() -> Finding {
    judge(fs::read_to_string(FILE).ok().as_deref())
}

/// What the file's content means; `None` where it cannot be read.
fn judge(content: Option<&str>) -> Finding {
    let Some(bits) = content.and_then(|text| text.trim().parse::<u64>().ok()) else {
        return Finding::note(Part::Measuring, CHECK, "not shown here", format!("look at {FILE} outside"));
    };
    if bits == 0 {
        return Finding::ok(Part::Measuring, CHECK, "none");
    }
    let reasons = format!("{bits}: {}", reasons(bits));
    if is_faulty(bits) {
        let found = format!("{reasons}. Figures and stability are in doubt until it is restarted");
        Finding::note(Part::Measuring, CHECK, found, "sudo dmesg (tells the cause), then restart the machine")
    } else {
        Finding::ok(Part::Measuring, CHECK, format!("{reasons}. Nothing went wrong"))
    }
}

fn is_faulty(bits: u64) -> bool {
    BITS.iter().enumerate().any(|(bit, (_, weight, _))| bits & 1 << bit != 0 && *weight == Fault)
}

/// Every set bit in words, with its letter; the faults first.
fn reasons(bits: u64) -> String {
    let set = |weight| {
        let of = move |(bit, known): (usize, &(char, Weight, &str))| {
            (bits & 1 << bit != 0 && known.1 == weight).then(|| format!("{} ({})", known.2, known.0))
        };
        BITS.iter().enumerate().filter_map(of)
    };
    let unknown = (BITS.len()..64).filter(|bit| bits & 1 << bit != 0).map(|bit| format!("bit {bit}"));
    set(Fault).chain(set(Information)).chain(unknown).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_fault_puts_everything_in_doubt() {
        let finding = judge(Some("4640\n"));
        assert_eq!(finding.verdict, Verdict::Note);
        assert_eq!(
            finding.found,
            "4640: a page was in a bad state (B); the kernel issued a warning (W); an out-of-tree module was loaded (O). \
             Figures and stability are in doubt until it is restarted"
        );
        let action = finding.action.expect("something to do");
        assert!(action.contains("dmesg") && action.contains("restart"), "{action}");
    }

    #[test]
    fn the_bits_of_faults() {
        let faults: Vec<u64> = (0..64)
            .map(|bit| 1 << bit)
            .filter(|&bits| judge(Some(&bits.to_string())).action.is_some())
            .collect();
        assert_eq!(faults, [16, 32, 128, 512, 16384]);
    }

    #[test]
    fn modules_are_only_information() {
        let finding = judge(Some("12289"));
        assert_eq!(finding.verdict, Verdict::Ok);
        assert_eq!(
            finding.found,
            "12289: a proprietary module was loaded (P); an out-of-tree module was loaded (O); an unsigned module was \
             loaded (E). Nothing went wrong"
        );
    }

    #[test]
    fn none_and_unknown() {
        assert_eq!(judge(Some("0\n")).found, "none");
        assert!(judge(Some(&(1_u64 << 40).to_string())).found.contains("bit 40"));
        for content in [None, Some(""), Some("much")] {
            let finding = judge(content);
            assert_eq!((finding.verdict, finding.found.as_str()), (Verdict::Note, "not shown here"));
        }
    }
}

//! Numbers that tell the answer to a question from a late answer to an earlier one.

/// Which of two sides numbers the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Numbers what it sends and takes only the answer with the same number.
    Asks,
    /// Answers with the number of what arrived.
    Answers,
}

/// One side's number, which stands in the first eight bytes of a message, as far as it has so many.
#[derive(Debug)]
pub(super) struct Numbers {
    role: Role,
    /// Number of the latest question. A late answer to an earlier one must not be taken for a fast answer.
    number: u64,
}

impl Numbers {
    pub(super) const fn new(role: Role) -> Numbers {
        Numbers { role, number: 0 }
    }

    /// Writes the number of the next question, or of the question that arrived, to a message.
    pub(super) fn stamp(&mut self, message: &mut [u8]) {
        if self.role == Role::Asks {
            self.number += 1;
        }
        let length = message.len().min(8);
        message[..length].copy_from_slice(&self.number.to_le_bytes()[..length]);
    }

    /// Whether a message that has just arrived is one to answer, or the answer.
    pub(super) fn fits(&mut self, message: &[u8]) -> bool {
        let mut number = [0; 8];
        let length = message.len().min(8);
        number[..length].copy_from_slice(&message[..length]);
        match self.role {
            Role::Asks => number[..length] == self.number.to_le_bytes()[..length],
            Role::Answers => {
                self.number = u64::from_le_bytes(number);
                true
            }
        }
    }
}

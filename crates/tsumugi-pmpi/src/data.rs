//! A program's data, of any type, as the bytes that its elements have one behind the other.

use crate::abi::{Abi, Number};
use crate::mpi::{Mpi, Place};
use std::ffi::c_int;

/// So many elements of a type at a place.
#[derive(Clone, Copy)]
pub(crate) struct Data {
    pub(crate) place: Place,
    pub(crate) count: c_int,
    pub(crate) datatype: usize,
    /// Their length one behind the other, bytes.
    pub(crate) bytes: usize,
    /// They lie so.
    is_plain: bool,
    /// By which they are packed.
    comm: usize,
}

impl Data {
    /// `None`: there are none, or more than `bytes_max`, or they have no length.
    pub(crate) fn of(
        mpi: &Mpi,
        abi: &Abi,
        place: Place,
        count: i64,
        datatype: usize,
        (comm, bytes_max): (usize, usize),
    ) -> Option<Data> {
        let number = abi.number(datatype);
        let each = match number.map(Number::bytes) {
            Some(bytes) => bytes,
            None => {
                let mut bytes = 0;
                // SAFETY: a type of the program's, and room for a number.
                let code = unsafe { mpi.type_size(datatype, &raw mut bytes) };
                usize::try_from(bytes).ok().filter(|_| code == 0)?
            }
        };
        let bytes = usize::try_from(count).ok()?.checked_mul(each)?;
        let count = c_int::try_from(count).ok()?;
        let is_plain = number.is_some();
        (1..=bytes_max).contains(&bytes).then_some(Data { place, count, datatype, bytes, is_plain, comm })
    }

    /// The bytes, in words; the last one is filled up. `None`: the MPI does not pack them.
    ///
    /// # Safety
    /// The data are there.
    pub(crate) unsafe fn words(&self, mpi: &Mpi) -> Option<Vec<u64>> {
        let mut words = self.room();
        let to: *mut u8 = words.as_mut_ptr().cast();
        if self.is_plain {
            // SAFETY: as the caller promises, and there is room.
            unsafe { to.copy_from_nonoverlapping(self.place.cast(), self.bytes) };
            return Some(words);
        }
        let (room, mut at) = (c_int::try_from(self.bytes).ok()?, 0);
        // SAFETY: as above.
        let code = unsafe {
            mpi.pack(self.place, self.count, self.datatype, to.cast(), room, &raw mut at, self.comm)
        };
        (code == 0 && at == room).then_some(words)
    }

    /// As many words, of zeros.
    pub(crate) fn room(&self) -> Vec<u64> {
        vec![0; self.bytes.div_ceil(size_of::<u64>())]
    }

    /// Puts the bytes where the data belong. `false`: the MPI does not unpack them.
    ///
    /// # Safety
    /// The place is there, and nobody else uses it.
    pub(crate) unsafe fn put(&self, mpi: &Mpi, words: &[u64]) -> bool {
        let from: *const u8 = words.as_ptr().cast();
        if size_of_val(words) < self.bytes {
            return false;
        }
        if self.is_plain {
            // SAFETY: as the caller promises, and there are as many.
            unsafe { self.place.cast::<u8>().copy_from_nonoverlapping(from, self.bytes) };
            return true;
        }
        let mut at = 0;
        // SAFETY: as above.
        let code = unsafe {
            let bytes = self.bytes as c_int;
            mpi.unpack(from.cast(), bytes, &raw mut at, self.place, self.count, self.datatype, self.comm)
        };
        code == 0
    }

    /// The same with a type that stays when the program frees its own, and a communicator that does if there is one.
    pub(crate) fn lasting(mut self, mpi: &Mpi, abi: &Abi) -> Option<Data> {
        if !self.is_plain {
            let mut kept = 0;
            // SAFETY: a type of the program's, and room for a handle.
            (unsafe { mpi.type_dup(self.datatype, &raw mut kept) } == 0).then_some(())?;
            self.datatype = kept;
            if mpi.has_world() {
                self.comm = abi.comm_self;
            }
        }
        Some(self)
    }

    /// Frees what [`Data::lasting`] has made.
    pub(crate) fn end(mut self, mpi: &Mpi) {
        if !self.is_plain {
            // SAFETY: made by `lasting`.
            unsafe { mpi.type_free(&raw mut self.datatype) };
        }
    }
}

//! What the binary interfaces of MPIs differ in: how long handles are, and which values stand for what.
//!
//! The values are those of the headers: MPICH's `mpi.h` (which MVAPICH's and Intel's have in common, "MPICH ABI compatibility
//! initiative"), Open MPI's `mpi.h`, where handles are addresses of variables, and `mpi.h` of MPI 5.0, chapter 20. A test compares them
//! with the headers of the MPIs that are there.

use crate::library::Library;
use std::ffi::{CStr, c_int};
use tsumugi::collective::ReductionKind;

/// Whose binary interface it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// MPICH's, and that of everything built on it.
    Mpich,
    /// Open MPI's.
    OpenMpi,
    /// That of MPI 5.
    Standard,
}

impl Kind {
    /// Whose binary interface a library has. `version` is what it says of itself.
    pub(crate) fn of(library: &Library, version: &str) -> Option<Kind> {
        if library.variable(c"ompi_mpi_comm_world").is_some() {
            return Some(Kind::OpenMpi);
        }
        let file = library.file();
        if file.rsplit('/').next().is_some_and(|name| name.starts_with("libmpi_abi.")) {
            return Some(Kind::Standard);
        }
        let of_mpich = ["MPICH", "Intel(R) MPI", "MVAPICH"];
        of_mpich.into_iter().any(|name| version.contains(name)).then_some(Kind::Mpich)
    }
}

/// A binary interface, with handles as its programs hold them.
pub(crate) struct Abi {
    /// Bytes of a handle.
    pub(crate) handle_bytes: usize,
    pub(crate) comm_self: usize,
    pub(crate) info_null: usize,
    pub(crate) byte: usize,
    pub(crate) in_place: usize,
    pub(crate) status_ignore: usize,
    pub(crate) any_source: c_int,
    pub(crate) err_other: c_int,
    pub(crate) comm_type_shared: c_int,
    /// Where `MPI_SOURCE` and `MPI_TAG` are in a status, in `int`s.
    pub(crate) source_at: usize,
    pub(crate) tag_at: usize,
    pub(crate) any_tag: c_int,
    types: Vec<Known<Number>>,
    operations: Vec<Known<ReductionKind>>,
}

/// A predefined handle and what it stands for.
struct Known<T> {
    name: &'static str,
    handle: usize,
    what: T,
}

/// What elements of a predefined type are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
    /// Eight bits without a meaning.
    Byte,
    /// Characters, which nothing is computed of.
    Text,
}

impl Number {
    /// Length of an element, bytes.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Number::I8 | Number::U8 | Number::Byte | Number::Text => 1,
            Number::I16 | Number::U16 => 2,
            Number::I32 | Number::U32 | Number::F32 => 4,
            Number::I64 | Number::U64 | Number::F64 => 8,
        }
    }
}

/// A predefined handle: its value in MPICH's interface, the variable that it is the address of in Open MPI's, and the value in MPI 5's.
struct Predefined<T> {
    name: &'static str,
    mpich: usize,
    open_mpi: &'static CStr,
    standard: usize,
    what: T,
}

macro_rules! predefined {
    ($list:ident: $type:ty { $($name:ident $mpich:literal $open_mpi:literal $standard:literal $what:ident;)* }) => {
        const $list: &[Predefined<$type>] = &[$(Predefined {
            name: stringify!($name),
            mpich: $mpich,
            open_mpi: $open_mpi,
            standard: $standard,
            what: <$type>::$what,
        }),*];
    };
}

predefined!(TYPES: Number {
    MPI_BYTE               0x4c00010d c"ompi_mpi_byte"               0x247 Byte;
    MPI_PACKED             0x4c00010f c"ompi_mpi_packed"             0x207 Text;
    MPI_CHAR               0x4c000101 c"ompi_mpi_char"               0x243 Text;
    MPI_SIGNED_CHAR        0x4c000118 c"ompi_mpi_signed_char"        0x244 I8;
    MPI_UNSIGNED_CHAR      0x4c000102 c"ompi_mpi_unsigned_char"      0x245 U8;
    MPI_SHORT              0x4c000203 c"ompi_mpi_short"              0x208 I16;
    MPI_UNSIGNED_SHORT     0x4c000204 c"ompi_mpi_unsigned_short"     0x20c U16;
    MPI_INT                0x4c000405 c"ompi_mpi_int"                0x209 I32;
    MPI_UNSIGNED           0x4c000406 c"ompi_mpi_unsigned"           0x20d U32;
    MPI_LONG               0x4c000807 c"ompi_mpi_long"               0x20a I64;
    MPI_UNSIGNED_LONG      0x4c000808 c"ompi_mpi_unsigned_long"      0x20e U64;
    MPI_LONG_LONG_INT      0x4c000809 c"ompi_mpi_long_long_int"      0x20b I64;
    MPI_UNSIGNED_LONG_LONG 0x4c000819 c"ompi_mpi_unsigned_long_long" 0x20f U64;
    MPI_FLOAT              0x4c00040a c"ompi_mpi_float"              0x210 F32;
    MPI_DOUBLE             0x4c00080b c"ompi_mpi_double"             0x214 F64;
    MPI_INT8_T             0x4c000137 c"ompi_mpi_int8_t"             0x240 I8;
    MPI_UINT8_T            0x4c00013b c"ompi_mpi_uint8_t"            0x241 U8;
    MPI_INT16_T            0x4c000238 c"ompi_mpi_int16_t"            0x248 I16;
    MPI_UINT16_T           0x4c00023c c"ompi_mpi_uint16_t"           0x249 U16;
    MPI_INT32_T            0x4c000439 c"ompi_mpi_int32_t"            0x250 I32;
    MPI_UINT32_T           0x4c00043d c"ompi_mpi_uint32_t"           0x251 U32;
    MPI_INT64_T            0x4c00083a c"ompi_mpi_int64_t"            0x258 I64;
    MPI_UINT64_T           0x4c00083e c"ompi_mpi_uint64_t"           0x259 U64;
    MPI_AINT               0x4c000843 c"ompi_mpi_aint"               0x201 I64;
    MPI_OFFSET             0x4c000844 c"ompi_mpi_offset"             0x203 I64;
    MPI_COUNT              0x4c000845 c"ompi_mpi_count"              0x202 I64;
    MPI_INTEGER            0x4c00041b c"ompi_mpi_integer"            0x219 I32;
    MPI_REAL               0x4c00041c c"ompi_mpi_real"               0x21a F32;
    MPI_DOUBLE_PRECISION   0x4c00081f c"ompi_mpi_dblprec"            0x21c F64;
    MPI_INTEGER4           0x4c000430 c"ompi_mpi_integer4"           0x2d1 I32;
    MPI_INTEGER8           0x4c000831 c"ompi_mpi_integer8"           0x2d9 I64;
    MPI_REAL4              0x4c000427 c"ompi_mpi_real4"              0x2d2 F32;
    MPI_REAL8              0x4c000829 c"ompi_mpi_real8"              0x2da F64;
});

predefined!(OPERATIONS: ReductionKind {
    MPI_SUM  0x58000003 c"ompi_mpi_op_sum"  0x21 Sum;
    MPI_PROD 0x58000004 c"ompi_mpi_op_prod" 0x24 Product;
    MPI_MIN  0x58000002 c"ompi_mpi_op_min"  0x22 Min;
    MPI_MAX  0x58000001 c"ompi_mpi_op_max"  0x23 Max;
    MPI_BAND 0x58000006 c"ompi_mpi_op_band" 0x28 Band;
    MPI_BOR  0x58000008 c"ompi_mpi_op_bor"  0x29 Bor;
    MPI_BXOR 0x5800000a c"ompi_mpi_op_bxor" 0x2a Bxor;
    MPI_LAND 0x58000005 c"ompi_mpi_op_land" 0x30 Land;
    MPI_LOR  0x58000007 c"ompi_mpi_op_lor"  0x31 Lor;
});

impl<T: Copy> Predefined<T> {
    /// Its handle; `None`: this version of the MPI has it not.
    fn handle(&self, kind: Kind, library: &Library) -> Option<usize> {
        match kind {
            Kind::Mpich => Some(self.mpich),
            Kind::OpenMpi => library.variable(self.open_mpi),
            Kind::Standard => Some(self.standard),
        }
    }
}

fn resolved<T: Copy>(list: &[Predefined<T>], kind: Kind, library: &Library) -> Vec<Known<T>> {
    let known = |one: &Predefined<T>| {
        Some(Known { name: one.name, handle: one.handle(kind, library)?, what: one.what })
    };
    list.iter().filter_map(known).collect()
}

fn find<T: Copy>(list: &[Known<T>], handle: usize) -> Option<T> {
    list.iter().find(|known| known.handle == handle).map(|known| known.what)
}

impl Abi {
    /// The interface of this kind; `None`: the library has not what belongs to it.
    pub(crate) fn of(kind: Kind, library: &Library) -> Option<Abi> {
        let variable = |name: &CStr| library.variable(name);
        let base = Abi {
            handle_bytes: size_of::<usize>(),
            comm_self: 0x102,
            info_null: 0x130,
            byte: 0x247,
            in_place: 1,
            status_ignore: 0,
            any_source: -1,
            any_tag: -2,
            err_other: 16,
            comm_type_shared: 221,
            source_at: 0,
            tag_at: 1,
            types: resolved(TYPES, kind, library),
            operations: resolved(OPERATIONS, kind, library),
        };
        Some(match kind {
            Kind::Standard => base,
            Kind::Mpich => Abi {
                handle_bytes: size_of::<c_int>(),
                comm_self: 0x4400_0001,
                info_null: 0x1c00_0000,
                byte: 0x4c00_010d,
                in_place: usize::MAX,
                status_ignore: 1,
                any_source: -2,
                any_tag: -1,
                err_other: 15,
                comm_type_shared: 1,
                source_at: 2,
                tag_at: 3,
                ..base
            },
            Kind::OpenMpi => Abi {
                comm_self: variable(c"ompi_mpi_comm_self")?,
                info_null: variable(c"ompi_mpi_info_null")?,
                byte: variable(c"ompi_mpi_byte")?,
                any_tag: -1,
                comm_type_shared: 0,
                ..base
            },
        })
    }

    /// A handle as a program has passed it. The upper half of a register that holds an `int` may be anything.
    pub(crate) fn handle(&self, passed: usize) -> usize {
        if self.handle_bytes == size_of::<c_int>() { passed as u32 as usize } else { passed }
    }

    /// What the elements of a type are; `None`: it is derived, or none of those that are known.
    pub(crate) fn number(&self, datatype: usize) -> Option<Number> {
        find(&self.types, datatype)
    }

    /// What an operation does; `None`: it is the program's, or none of those that are known.
    pub(crate) fn reduction(&self, operation: usize) -> Option<ReductionKind> {
        find(&self.operations, operation)
    }

    /// Leaves out types that are of another length here, as Fortran's may be.
    pub(crate) fn keep_types(&mut self, mut bytes_of: impl FnMut(usize) -> Option<usize>) {
        self.types.retain(|known| bytes_of(known.handle) == Some(known.what.bytes()));
    }

    /// What stands for a name of the standard's here, for tests; the places of fields in a status are in bytes.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        let int = size_of::<c_int>();
        let of_list = || {
            let types = self.types.iter().map(|known| (known.name, known.handle));
            let mut all = types.chain(self.operations.iter().map(|known| (known.name, known.handle)));
            all.find(|(known, _)| *known == name).map(|(_, handle)| handle)
        };
        Some(match name {
            "MPI_COMM_SELF" => self.comm_self,
            "MPI_INFO_NULL" => self.info_null,
            "MPI_IN_PLACE" => self.in_place,
            "MPI_STATUS_IGNORE" => self.status_ignore,
            "MPI_ANY_SOURCE" => self.any_source as usize,
            "MPI_ANY_TAG" => self.any_tag as usize,
            "MPI_ERR_OTHER" => self.err_other as usize,
            "MPI_COMM_TYPE_SHARED" => self.comm_type_shared as usize,
            "MPI_SOURCE" => self.source_at * int,
            "MPI_TAG" => self.tag_at * int,
            "MPI_Comm" => self.handle_bytes,
            _ => of_list()?,
        })
    }
}

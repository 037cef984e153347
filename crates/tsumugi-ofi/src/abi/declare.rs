//! The macros that structs, constants and function types are declared with. Each leaves a record of what it
//! declared, so that tests/abi.rs asks a C compiler about everything there is.

/// A struct as declared here.
#[derive(Clone, Copy, Debug)]
pub struct Struct {
    /// Its name, here and in C.
    pub name: &'static str,
    /// Its size.
    pub bytes: usize,
    /// Its fields in order.
    pub fields: &'static [Field],
}

/// A field of a [`Struct`].
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name; one that is a word of Rust's begins with `r#`.
    pub name: &'static str,
    /// Where it begins.
    pub offset_bytes: usize,
    /// Its size.
    pub bytes: usize,
    /// Its type as written in Rust.
    pub kind: &'static str,
}

/// A constant as declared here.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Its name, here and in C.
    pub name: &'static str,
    /// Its value; a negative one modulo 2^64.
    pub value: u64,
}

/// The type of a function that the host exports.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// The type's name: the function's with `_fn` behind it.
    pub name: &'static str,
    /// The type as written in Rust.
    pub kind: &'static str,
}

/// Declares `#[repr(C)]` structs, and a record of them under the name given first.
macro_rules! structs {
    ($record:ident $(
        $(#[$about_struct:meta])*
        pub struct $name:ident {
            $($(#[$about_field:meta])* pub $field:ident: $kind:ty,)*
        }
    )*) => {
        $(
            $(#[$about_struct])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name {
                $($(#[$about_field])* pub $field: $kind,)*
            }
        )*
        pub(super) const $record: &[$crate::abi::declare::Struct] = &[$(
            $crate::abi::declare::Struct {
                name: stringify!($name),
                bytes: size_of::<$name>(),
                fields: &[$(
                    $crate::abi::declare::Field {
                        name: stringify!($field),
                        offset_bytes: std::mem::offset_of!($name, $field),
                        bytes: size_of::<$kind>(),
                        kind: stringify!($kind),
                    },
                )*],
            },
        )*];
    };
}

/// Declares constants, and a record of them under the name given first.
macro_rules! constants {
    ($record:ident $($(#[$about:meta])* pub const $name:ident: $kind:ty = $value:expr;)*) => {
        $($(#[$about])* pub const $name: $kind = $value;)*
        #[allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "constants of every integer type")]
        pub(super) const $record: &[$crate::abi::declare::Constant] = &[$(
            $crate::abi::declare::Constant { name: stringify!($name), value: $name as u64 },
        )*];
    };
}

/// Declares types of functions that the host exports, and a record of them under the name given first.
macro_rules! functions {
    ($record:ident $($(#[$about:meta])* pub type $name:ident = $kind:ty;)*) => {
        $($(#[$about])* pub type $name = $kind;)*
        pub(super) const $record: &[$crate::abi::declare::Function] = &[$(
            $crate::abi::declare::Function { name: stringify!($name), kind: stringify!($kind) },
        )*];
    };
}

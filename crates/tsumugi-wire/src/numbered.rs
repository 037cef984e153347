//! Enumerations that travel as numbers.

/// Declares an enumeration with its list `ALL`, in the order of its numbers, and the way back, `from_number`.
macro_rules! numbered {
    (
        $(#[$about:meta])*
        pub enum $name:ident: $number:ident {
            $($(#[$about_one:meta])* $one:ident = $value:literal,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($number)]
        pub enum $name {
            $($(#[$about_one])* $one = $value,)+
        }

        impl $name {
            /// Every one, in the order of its number.
            pub const ALL: [$name; [$($value),+].len()] = [$($name::$one),+];

            /// The one with this number.
            #[must_use]
            pub const fn from_number(number: $number) -> Option<$name> {
                match number {
                    $($value => Some($name::$one),)+
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use numbered;

//! What an item defines, and what it names.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item};

/// The name that an item defines, if it has one that a path can end in.
pub(crate) fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Whether an item is compiled for tests only.
pub(crate) fn is_for_tests(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    };
    attributes.iter().any(|attribute| {
        let condition = attribute.path().is_ident("cfg").then(|| attribute.to_token_stream().to_string());
        condition.is_some_and(|condition| condition.contains("(test"))
    })
}

/// Adds every path in an item, also in what macros are given. A single word is a path, too: an import may stand behind it.
pub(crate) fn collect(item: &Item, paths: &mut BTreeSet<Vec<String>>) {
    scan(item.to_token_stream(), paths);
}

fn scan(tokens: TokenStream, paths: &mut BTreeSet<Vec<String>>) {
    let (mut path, mut colons) = (Vec::new(), 0);
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                if colons != 2 {
                    paths.insert(std::mem::take(&mut path));
                }
                path.push(word.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            other => {
                paths.insert(std::mem::take(&mut path));
                colons = 0;
                if let TokenTree::Group(group) = other {
                    scan(group.stream(), paths);
                }
            }
        }
    }
    paths.insert(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_wherever_they_stand() {
        let item: Item = syn::parse_str(
            "fn f(a: b::C) -> Vec<d::E> { let x: G = println!(\"{}\", crate::h::i(j.k)); super::l::M::n }",
        )
        .unwrap();
        let mut paths = BTreeSet::new();
        collect(&item, &mut paths);
        for path in ["b::C", "d::E", "G", "crate::h::i", "super::l::M::n"] {
            assert!(
                paths.contains(&path.split("::").map(str::to_owned).collect::<Vec<_>>()),
                "{path}: {paths:?}"
            );
        }
        assert_eq!(defined(&item).as_deref(), Some("f"));
    }

    #[test]
    fn tests_are_told_apart() {
        for (text, is) in
            [("#[cfg(test)] mod tests {}", true), ("#[cfg(unix)] mod a {}", false), ("fn f() {}", false)]
        {
            assert_eq!(is_for_tests(&syn::parse_str(text).unwrap()), is, "{text}");
        }
    }
}

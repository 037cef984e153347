//! The modules of a crate: where each is written, what it defines and what it imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Item, ItemMod, UseTree};

use crate::names;

/// Where a module stands below the crate's root, as in `["endpoint", "peer"]`.
pub(crate) type ModulePath = Vec<String>;

/// A module.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) file: PathBuf,
    /// What is defined in it, but for modules.
    pub(crate) defined: BTreeSet<String>,
    /// Names that stand for what is defined elsewhere: whole paths, as written.
    pub(crate) imported: BTreeMap<String, Vec<String>>,
    /// Modules whose names stand here as well.
    pub(crate) globs: Vec<Vec<String>>,
    /// Paths that its code names, as written.
    pub(crate) named: BTreeSet<Vec<String>>,
}

/// Every module of a crate, by its path.
pub(crate) type Modules = BTreeMap<ModulePath, Module>;

/// Reads a crate from its root file. What cannot be read or parsed is left out; the compiler complains of it.
pub(crate) fn read(root: &Path) -> Modules {
    let mut modules = Modules::new();
    let folder = root.parent().unwrap_or(Path::new(""));
    read_file(root, folder, &Vec::new(), &mut modules);
    modules
}

fn read_file(file: &Path, folder: &Path, path: &ModulePath, modules: &mut Modules) {
    let parsed = fs::read_to_string(file).ok().and_then(|text| syn::parse_file(&text).ok());
    if let Some(parsed) = parsed {
        read_items(parsed.items, file, folder, path, modules);
    }
}

fn read_items(items: Vec<Item>, file: &Path, folder: &Path, path: &ModulePath, modules: &mut Modules) {
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    for item in items.into_iter().filter(|item| !names::is_for_tests(item)) {
        match item {
            Item::Mod(child) => read_module(child, file, folder, path, modules),
            Item::Use(import) => import_all(&import.tree, &mut Vec::new(), &mut module),
            item => {
                module.defined.extend(names::defined(&item));
                names::collect(&item, &mut module.named);
            }
        }
    }
    modules.insert(path.clone(), module);
}

fn read_module(module: ItemMod, file: &Path, folder: &Path, parent: &ModulePath, modules: &mut Modules) {
    let name = module.ident.to_string();
    let path = [&parent[..], std::slice::from_ref(&name)].concat();
    let inner = folder.join(&name);
    if let Some((_, items)) = module.content {
        return read_items(items, file, &inner, &path, modules);
    }
    let beside = folder.join(format!("{name}.rs"));
    let file = if beside.exists() { beside } else { inner.join("mod.rs") };
    read_file(&file, &inner, &path, modules);
}

/// The names that a `use` makes.
fn import_all(tree: &UseTree, before: &mut Vec<String>, module: &mut Module) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            import_all(&path.tree, before, module);
            before.pop();
        }
        UseTree::Name(name) => import(name.ident.to_string(), name.ident.to_string(), before, module),
        UseTree::Rename(name) => import(name.rename.to_string(), name.ident.to_string(), before, module),
        UseTree::Glob(_) => module.globs.push(before.clone()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| import_all(tree, before, module)),
    }
}

fn import(name: String, last: String, before: &[String], module: &mut Module) {
    let is_self = last == "self";
    let path = if is_self { before.to_vec() } else { [before, &[last]].concat() };
    let name = if is_self && name == "self" { path.last().cloned().unwrap_or_default() } else { name };
    module.imported.insert(name, path);
}

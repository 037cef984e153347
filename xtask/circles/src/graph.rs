//! Which file needs which, and the circles in that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::modules::{Module, ModulePath, Modules};

/// What has been looked up on the way: modules that import everything of each other would lead around for ever.
type Seen = BTreeSet<(ModulePath, Vec<String>)>;

/// The files of a crate.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    files: Vec<PathBuf>,
    /// For each file the files that it needs, and the names that it takes from them.
    needs: Vec<BTreeMap<usize, BTreeSet<String>>>,
}

impl Graph {
    pub(crate) fn of(modules: &Modules) -> Graph {
        let mut graph = Graph::default();
        for (path, module) in modules {
            let from = graph.file(&module.file);
            let paths = module.imported.values().chain(&module.named);
            for (target, name) in
                paths.filter_map(|written| resolve(modules, path, written, &mut Seen::new()))
            {
                let is_own_ground = path.starts_with(&target);
                let to = graph.file(&modules[&target].file);
                if to != from && !is_own_ground {
                    graph.needs[from].entry(to).or_default().insert(name);
                }
            }
        }
        graph
    }

    fn file(&mut self, file: &Path) -> usize {
        self.files.iter().position(|known| known == file).unwrap_or_else(|| {
            self.files.push(file.to_owned());
            self.needs.push(BTreeMap::new());
            self.files.len() - 1
        })
    }

    /// The files that can be reached from one.
    fn reached(&self, from: usize) -> BTreeSet<usize> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            next.extend(self.needs[file].keys().filter(|&&to| reached.insert(to)));
        }
        reached
    }

    /// Each set of files that all need each other, at last.
    pub(crate) fn circles(&self) -> BTreeSet<BTreeSet<usize>> {
        let reached: Vec<BTreeSet<usize>> = (0..self.files.len()).map(|file| self.reached(file)).collect();
        let circle = |file: usize| -> BTreeSet<usize> {
            reached[file].iter().copied().filter(|&other| reached[other].contains(&file)).collect()
        };
        (0..self.files.len()).map(circle).filter(|circle| circle.len() > 1).collect()
    }

    /// What a file of a circle takes from its others, a line for each.
    pub(crate) fn shown(&self, file: usize, circle: &BTreeSet<usize>, root: &Path) -> Vec<String> {
        let short = |file: usize| self.files[file].strip_prefix(root).unwrap_or(&self.files[file]).display();
        let needs = self.needs[file].iter().filter(|(to, _)| circle.contains(to));
        let names =
            |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        needs.map(|(&to, taken)| format!("{} -> {}: {}", short(file), short(to), names(taken))).collect()
    }
}

/// Finds where something is defined: the module, and its name there. `None` of what is not of this crate, and of modules.
fn resolve(
    modules: &Modules,
    from: &ModulePath,
    written: &[String],
    seen: &mut Seen,
) -> Option<(ModulePath, String)> {
    if !seen.insert((from.clone(), written.to_vec())) {
        return None;
    }
    let (first, mut rest) = written.split_first()?;
    let mut at = from.clone();
    match first.as_str() {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            at.pop()?;
            while let Some((_, further)) = rest.split_first().filter(|(next, _)| *next == "super") {
                at.pop()?;
                rest = further;
            }
        }
        _ => rest = written,
    }
    while let Some((name, further)) = rest.split_first() {
        let module = modules.get(&at)?;
        if module.defined.contains(name) {
            return Some((at, name.clone()));
        }
        let child = [&at[..], std::slice::from_ref(name)].concat();
        if modules.contains_key(&child) {
            (at, rest) = (child, further);
            continue;
        }
        return imported(modules, &at, module, name, further, seen);
    }
    None
}

/// Follows an import, or a glob.
fn imported(
    modules: &Modules,
    at: &ModulePath,
    module: &Module,
    name: &str,
    rest: &[String],
    seen: &mut Seen,
) -> Option<(ModulePath, String)> {
    if let Some(path) = module.imported.get(name) {
        // A name that stands for a crate of this name.
        let is_itself = path.len() == 1 && path[0] == name;
        return if is_itself { None } else { resolve(modules, at, &[path, rest].concat(), seen) };
    }
    // Where the glob begins is looked for through globs, too, but once: what is of another crate is found through none.
    if !seen.insert((at.clone(), vec!["*".to_owned(), name.to_owned()])) {
        return None;
    }
    let through =
        |glob: &Vec<String>| resolve(modules, at, &[&glob[..], &[name.to_owned()], rest].concat(), seen);
    module.globs.iter().find_map(through)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules;

    /// The circles of a crate of these files, by name.
    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = std::env::temp_dir().join(format!("circles-{}-{:p}", std::process::id(), files));
        for (name, text) in files {
            let file = folder.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let graph = Graph::of(&modules::read(&folder.join("lib.rs")));
        std::fs::remove_dir_all(&folder).unwrap();
        let name = |&file: &usize| graph.files[file].strip_prefix(&folder).unwrap().display().to_string();
        let sorted =
            |circle: &BTreeSet<usize>| circle.iter().map(name).collect::<BTreeSet<_>>().into_iter().collect();
        graph.circles().iter().map(sorted).collect()
    }

    #[test]
    fn files_that_need_each_other_are_found() {
        let root = ("lib.rs", "mod a; mod b; mod c;");
        let a = ("a.rs", "use crate::b::B; pub struct A;");
        assert_eq!(circles(&[root, a, ("b.rs", "pub struct B;"), ("c.rs", "")]), Vec::<Vec<String>>::new());
        assert_eq!(
            circles(&[root, a, ("b.rs", "pub struct B(super::a::A);"), ("c.rs", "")]),
            [["a.rs", "b.rs"]]
        );
        let b = ("b.rs", "use crate::c; pub struct B; fn f() { c::f() }");
        assert_eq!(
            circles(&[root, a, b, ("c.rs", "use crate::a::*; fn f(a: A) {}")]),
            [["a.rs", "b.rs", "c.rs"]]
        );
    }

    #[test]
    fn imports_are_followed_to_where_a_thing_is_defined() {
        let root = ("lib.rs", "mod a; mod b; pub use b::B;");
        let a = ("a.rs", "pub struct A(crate::B);");
        assert_eq!(circles(&[root, a, ("b.rs", "use crate::a::A; pub struct B;")]), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn a_folder_is_the_ground_of_its_files() {
        let root = ("lib.rs", "mod a; mod b;");
        let ground = ("a/mod.rs", "mod x; pub struct A(x::X);");
        assert!(circles(&[root, ground, ("a/x.rs", "pub struct X(super::A);"), ("b.rs", "")]).is_empty());
        let (x, b) = (("a/x.rs", "pub struct X(crate::b::B);"), ("b.rs", "pub struct B(crate::a::A);"));
        assert_eq!(circles(&[root, ground, x, b]), [["a/mod.rs", "a/x.rs", "b.rs"]]);
    }

    #[test]
    fn modules_that_import_all_of_each_other_are_looked_up_once() {
        let children: String = ('b'..='l').map(|name| format!("mod {name}; pub use {name}::*; ")).collect();
        let root = format!("mod z; {children}");
        let mut files =
            vec![("lib.rs".to_owned(), root), ("z.rs".to_owned(), "fn f(a: Unknown) {}".to_owned())];
        files.extend(
            ('b'..='l').map(|name| (format!("{name}.rs"), "use super::*; fn g(a: Unknown) {}".to_owned())),
        );
        let files: Vec<(&str, &str)> =
            files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert!(circles(&files).is_empty());
    }

    #[test]
    fn globs_of_other_crates_end_the_search() {
        let root = ("lib.rs", "mod a; mod b;");
        let a = ("a.rs", "use other::prelude::*; use another::*; use crate::b::*; pub struct A(B, Unknown);");
        assert!(circles(&[root, a, ("b.rs", "pub struct B;")]).is_empty());
        let b = ("b.rs", "use crate::a::A; pub struct B;");
        assert_eq!(circles(&[root, a, b]), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn tests_do_not_count() {
        let root = ("lib.rs", "mod a; mod b;");
        let a = ("a.rs", "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }");
        assert!(circles(&[root, a, ("b.rs", "use crate::a::A; pub struct B;")]).is_empty());
    }
}

//! What is left in the kernel: nothing.

use crate::cluster::Cluster;

#[test]
fn attached_and_detached_a_hundred_times_leaves_nothing() {
    let test = "attached_and_detached_a_hundred_times_leaves_nothing";
    let Some(cluster) = Cluster::new(test) else { return };
    // Half of them in each node, at the same time.
    let role = "again_and_again times=50 endpoints=2 flows=8 ring=4096";
    for mut role in [0, 1].map(|node| cluster.start(node, role)) {
        // A link and a program each time, and of maps: two for each endpoint, the two that they are found by, and
        // the program's constants.
        let loaded = role.hear();
        let counts: Vec<u32> = loaded.split(' ').map(|count| count.parse().unwrap()).collect();
        assert_eq!((counts[0], counts[1]), (50, 50), "{loaded}");
        assert!(counts[2] >= 350, "{loaded}");
        role.finish_while(|| ());
    }
    assert_eq!([0, 1].map(|node| cluster.traces(node)), ["", ""]);
}

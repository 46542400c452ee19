//! The lab is made once on a machine and found from then on. Whoever runs all tests runs
//! this one first, so that those which boot guests do not wait for each other meanwhile.

use std::time::{Duration, Instant};

use giveway_lab::{Lab, LabSpec, Lines};

#[test]
fn what_is_made_is_found_again_at_once() {
    let made = Lab::open(&LabSpec::default(), &Lines).unwrap();
    let start = Instant::now();
    let found = Lab::open(&LabSpec::default(), &Lines).unwrap();
    // It takes milliseconds; whatever is made takes minutes.
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(made.qemu(), found.qemu());
    assert_eq!(made.image(), found.image());
    assert_eq!(made.kernel().release(), found.kernel().release());
}

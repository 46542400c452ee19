//! Directories stand in for the hierarchy here: they keep no rules, so these
//! tests check what is asked of the kernel, and the tests in a virtual machine
//! check that it agrees.

use super::*;

/// A directory that looks like a hierarchy with these controllers.
fn hierarchy(controllers: &str) -> (tempfile::TempDir, Hierarchy) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
    fs::write(dir.path().join("cgroup.procs"), "").unwrap();
    let found = Hierarchy::at(dir.path());
    (dir, found)
}

fn caller(pid: u32) -> Caller {
    Caller {
        cgroup: "/".into(),
        is_root: true,
        pid,
    }
}

fn heeding(heeds_marks: bool) -> Rule {
    Rule {
        heeds_marks,
        ..Rule::default()
    }
}

/// One whose background label is another, with this default tier.
fn batch(default_tier: Tier) -> Rule {
    Rule {
        labels: [vec!["batch".into()], vec![]],
        default_tier,
        heeds_marks: false,
    }
}

#[test]
fn missing_controllers_are_put_down_to_who_withholds_them() {
    let (dir, hierarchy) = hierarchy("memory pids");
    let v2 = "32 30 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let v1 = format!("31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n{v2}");
    assert_eq!(hierarchy.withheld(v2), Withheld::ByKernel);
    assert_eq!(hierarchy.withheld(&v1), Withheld::ByV1);
    fs::write(dir.path().join("cgroup.type"), "domain\n").unwrap();
    assert_eq!(hierarchy.withheld(v2), Withheld::ByMachine);
}

#[test]
fn leaf_is_created_under_a_label_of_the_loaded_ufs() {
    let (dir, hierarchy) = hierarchy("cpu");
    let leaf = |tier, rule: &Rule| hierarchy.leaf(tier, None, &caller(7), rule);
    let is_at = |leaf: Leaf, path: &str| assert_eq!(leaf.dir(), dir.path().join(path));
    let (high, low) = (Tier::TimeSensitive, Tier::Background);
    let rule = batch(high);
    is_at(leaf(low, &rule).unwrap(), "giveway/batch/run-7");
    // The default serves for a tier without labels.
    is_at(leaf(high, &rule).unwrap(), "giveway/time_sensitive/run-7");
    let refused = leaf(high, &batch(low)).unwrap_err().to_string();
    assert!(
        refused.contains("no label for the time_sensitive tier"),
        "{refused}"
    );
    assert!(
        refused.contains("--time-sensitive-label=time_sensitive"),
        "{refused}"
    );
}

#[test]
fn status_uses_the_loaded_labels_and_default_tier() {
    let (dir, hierarchy) = hierarchy("cpu");
    for name in ["background-x", "batch-y"] {
        fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let rows = |rule: &Rule| -> Vec<(String, Tier)> {
        let found = hierarchy.labelled_by(rule, &|_| None, &|_| true);
        let row = |row: Labelled| (row.path.display().to_string(), row.tier);
        found.into_iter().map(row).collect()
    };
    let low = Tier::Background;
    assert_eq!(rows(&batch(Tier::TimeSensitive)), [("batch-y".into(), low)]);
    assert_eq!(rows(&Rule::default()), [("background-x".into(), low)]);
    // Whose name asks for more than the default counts if root has chosen it.
    let urgent = Rule {
        default_tier: low,
        ..Rule::default()
    };
    fs::create_dir_all(dir.path().join("time_sensitive")).unwrap();
    let rows = rows(&urgent);
    assert!(
        rows.contains(&("time_sensitive".into(), Tier::TimeSensitive)),
        "{rows:?}"
    );
}

#[test]
fn a_leaf_asks_for_the_controllers_that_are_there_and_goes_away() {
    // Each request replaces the one before it in a file.
    for (controllers, last) in [
        ("io", "+io"),
        ("cpu io", "+io"),
        ("cpu memory", "+cpu"),
        ("lock cpu", "+lock"),
    ] {
        let (dir, hierarchy) = hierarchy(controllers);
        let _leaf = hierarchy
            .leaf(Tier::Background, None, &caller(7), &Rule::default())
            .unwrap();
        let asked = fs::read_to_string(dir.path().join("cgroup.subtree_control"));
        assert_eq!(asked.unwrap_or_default(), last, "{controllers}");
    }
    let (dir, hierarchy) = hierarchy("cpuset cpu memory");
    let leaf = hierarchy
        .leaf(Tier::Background, None, &caller(7), &Rule::default())
        .unwrap();
    assert_eq!(leaf.dir(), dir.path().join("giveway/background/run-7"));
    let asked = fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap();
    assert_eq!(asked, "+cpuset");
    assert!(dir.path().join("giveway/time_sensitive").is_dir());
    assert_eq!(leaf.remove(), 0);
    assert!(!dir.path().join("giveway/background/run-7").exists());
}

#[test]
fn tiers_have_weights_at_the_disk_where_the_kernel_has_them() {
    let (dir, hierarchy) = hierarchy("cpu io");
    let ours = dir.path().join("giveway");
    for tier in ["", "time_sensitive", "background"] {
        fs::create_dir_all(ours.join(tier)).unwrap();
        fs::write(ours.join(tier).join("io.weight"), "default 100\n").unwrap();
    }
    let weights = || {
        ["", "time_sensitive", "background"].map(|tier| {
            let text = fs::read_to_string(ours.join(tier).join("io.weight"));
            text.unwrap().trim().to_owned()
        })
    };
    let leaf = |tier, pid| {
        hierarchy
            .leaf(tier, None, &caller(pid), &Rule::default())
            .unwrap()
    };
    let alone = ["default 1", "default 10000", "default 1"];
    let background = leaf(Tier::Background, 7);
    assert_eq!(weights(), alone);
    let urgent = leaf(Tier::TimeSensitive, 8);
    assert_eq!(weights(), ["default 100", "default 10000", "default 1"]);
    assert_eq!(urgent.remove(), 0);
    assert_eq!(weights(), alone);
    drop(background);
}

#[test]
fn tiers_have_weights_at_the_cpu_unless_an_administrator_gave_them_others() {
    let (dir, hierarchy) = hierarchy("cpu");
    let file = |tier| dir.path().join("giveway").join(tier).join("cpu.weight");
    for (tier, weight) in [("time_sensitive", "100\n"), ("background", "7\n")] {
        fs::create_dir_all(file(tier).parent().unwrap()).unwrap();
        fs::write(file(tier), weight).unwrap();
    }
    let _leaf = hierarchy
        .leaf(Tier::Background, None, &caller(7), &Rule::default())
        .unwrap();
    let weight = |tier| fs::read_to_string(file(tier)).unwrap();
    assert_eq!(weight("time_sensitive").trim(), "10000");
    assert_eq!(weight("background").trim(), "7");
}

#[test]
fn a_weight_that_cannot_be_set_is_refused_with_the_remedy() {
    let (dir, hierarchy) = hierarchy("memory pids");
    let failure = hierarchy
        .leaf(
            Tier::Background,
            Some(Weight::DEFAULT),
            &caller(7),
            &Rule::default(),
        )
        .unwrap_err()
        .to_string();
    assert!(
        failure.contains("weight 100") && failure.contains("remedy:"),
        "{failure}"
    );
    assert!(!dir.path().join("giveway/background/run-7").exists());
}

#[test]
fn leaves_of_dead_supervisors_are_removed() {
    let (dir, hierarchy) = hierarchy("");
    let tier = dir.path().join("giveway/background");
    let alive = format!("run-{}.1", std::process::id());
    // Process ids end at 4194304.
    for leaf in ["run-99999999", "run-99999999.3", &alive, "reports"] {
        fs::create_dir_all(tier.join(leaf)).unwrap();
    }
    let _leaf = hierarchy
        .leaf(Tier::Background, None, &caller(0), &Rule::default())
        .unwrap();
    let names: Vec<String> = Cgroup::at(&tier)
        .children()
        .iter()
        .map(|child| child.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["reports", "run-0", &alive]);
}

#[test]
fn status_lists_labelled_cgroups_and_their_children_with_tasks_below() {
    let (dir, hierarchy) = hierarchy("cpu");
    let reports = dir.path().join("system.slice/background-reports/a/b");
    fs::create_dir_all(&reports).unwrap();
    fs::create_dir_all(dir.path().join("user.slice/x")).unwrap();
    fs::write(reports.join("cgroup.threads"), "11\n12\n").unwrap();
    fs::write(reports.join("../cpu.weight"), "40\n").unwrap();
    let line = |path: &str, weight| Labelled {
        tier: Tier::Background,
        mark: None,
        path: path.into(),
        weight,
        tasks: 2,
    };
    assert_eq!(
        hierarchy.labelled(&heeding(true)),
        [
            line("system.slice/background-reports", None),
            line("system.slice/background-reports/a", Some(40)),
        ]
    );
}

#[test]
fn tasks_below_count_for_each_listed_cgroup_above_them() {
    let (dir, hierarchy) = hierarchy("cpu");
    let outer = dir.path().join("background");
    let inner = outer.join("a/b/background");
    fs::create_dir_all(inner.join("c/d")).unwrap();
    fs::write(outer.join("cgroup.threads"), "1\n").unwrap();
    fs::write(outer.join("a/b/cgroup.threads"), "2\n3\n").unwrap();
    fs::write(inner.join("c/d/cgroup.threads"), "4\n5\n6\n7\n").unwrap();
    let rows = hierarchy.labelled(&heeding(true)).into_iter();
    let rows: Vec<_> = rows
        .map(|row| (row.path.display().to_string(), row.tasks))
        .collect();
    let listed = |path: &str, tasks| (path.to_owned(), tasks);
    assert_eq!(
        rows,
        [
            listed("background", 7),
            listed("background/a", 6),
            listed("background/a/b/background", 4),
            listed("background/a/b/background/c", 4),
        ]
    );
}

#[test]
fn status_lists_marked_cgroups_in_the_tier_that_counts() {
    let (dir, hierarchy) = hierarchy("cpu");
    fs::create_dir_all(dir.path().join("pod/inner/user/time_sensitive")).unwrap();
    let mark = |dir: &Path| dir.ends_with("pod").then_some(Tier::Background);
    // What a user has named so is not raised above the mark.
    let by_root = |dir: &Path| !dir.ends_with("user/time_sensitive");
    let tiers = |heeded| -> Vec<(String, Tier, bool)> {
        let found = hierarchy.labelled_by(&heeding(heeded), &mark, &by_root);
        let row = |row: Labelled| (row.path.display().to_string(), row.tier, row.mark.is_some());
        found.into_iter().map(row).collect()
    };
    let low = Tier::Background;
    assert_eq!(
        tiers(true),
        [("pod".into(), low, true), ("pod/inner".into(), low, false)]
    );
    let high = Tier::TimeSensitive;
    assert_eq!(
        tiers(false),
        [
            ("pod".into(), high, true),
            ("pod/inner/user/time_sensitive".into(), high, false)
        ]
    );
}

#[test]
fn callers_tier_is_that_of_its_cgroup() {
    let (_dir, hierarchy) = hierarchy("cpu");
    let text = "1:name=systemd:/\n0::/giveway/background/run-3\n";
    let caller = Caller {
        cgroup: cgroup::path_in(text.as_bytes()).unwrap().to_path_buf(),
        ..caller(3)
    };
    let tier = caller.tier(&hierarchy, &Rule::default());
    assert_eq!(tier, Tier::Background);
}

#[test]
fn tier_follows_marks_then_countable_names_then_cpu_idle() {
    let (dir, hierarchy) = hierarchy("cpu");
    let (high, low) = (Tier::TimeSensitive, Tier::Background);
    for (path, idle) in [
        ("a/plain", "1\n"),
        ("a/time_sensitive", "1\n"),
        ("b/x", "0\n"),
    ] {
        fs::create_dir_all(dir.path().join(path)).unwrap();
        fs::write(dir.path().join(path).join("cpu.idle"), idle).unwrap();
    }
    let mark = |dir: &Path| dir.ends_with("b").then_some(low);
    let tier = |path: &str, heeds_marks, by_root: bool| {
        hierarchy.tier_at_by(Path::new(path), &heeding(heeds_marks), &mark, &|_| by_root)
    };
    assert_eq!(tier("/a", true, true), high);
    assert_eq!(tier("/a/plain/below", true, true), low);
    // A name counts before cpu.idle.
    assert_eq!(tier("/a/time_sensitive", true, true), high);
    assert_eq!(tier("/b/x", true, true), low);
    assert_eq!(tier("/b/x", false, true), high);
    // A name that raises counts only if root has chosen it.
    assert_eq!(tier("/b/time_sensitive", true, true), high);
    assert_eq!(tier("/b/time_sensitive", true, false), low);
}

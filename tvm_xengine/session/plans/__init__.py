"""Plans that come from elsewhere: a file, a schedule, another process, an earlier plan."""

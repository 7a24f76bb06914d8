{
  outputs =
    { self }:
    {
      lib.genAttrs =
        names: make:
        builtins.listToAttrs (
          map (name: {
            inherit name;
            value = make name;
          }) names
        );
    };
}

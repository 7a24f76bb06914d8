{ system, config }:
let
  entries = builtins.fromJSON (builtins.readFile ./read.json);

  build =
    name: arguments:
    derivation (
      {
        inherit name system;
        builder = "/bin/sh";
      }
      // arguments
    );

  package =
    name: entry:
    build (builtins.replaceStrings [ "." ] [ "-" ] name) { outputs = entry.outputs or [ "out" ]; };

  variables =
    arguments:
    builtins.removeAttrs arguments [
      "meta"
      "passthru"
      "pname"
      "version"
    ];

  wheelFile =
    {
      pname,
      version,
      dist ? "py2.py3",
      python ? "py2.py3",
      abi ? "none",
      platform ? "any",
    }:
    "${pname}-${version}-${python}-${abi}-${platform}.whl";

  functions = {
    "stdenv.mkDerivation" =
      arguments:
      build (arguments.name or "${arguments.pname}-${arguments.version}") (variables arguments)
      // {
        inherit arguments;
        meta = arguments.meta or { };
      };
    fetchPypi =
      {
        format ? "setuptools",
        sha256 ? "",
        hash ? "",
        ...
      }@arguments:
      assert format == "wheel";
      build
        (wheelFile (
          builtins.removeAttrs arguments [
            "format"
            "hash"
            "sha256"
          ]
        ))
        {
          outputHash = if hash != "" then hash else sha256;
          outputHashAlgo = "sha256";
          outputHashMode = "flat";
        }
      // {
        inherit arguments;
      };
    mkShell = arguments: build "nix-shell" arguments // { inherit arguments; };
    runCommand =
      name: arguments: buildCommand:
      build name (arguments // { inherit buildCommand; })
      // {
        inherit buildCommand;
      };
    symlinkJoin =
      arguments: build arguments.name { inherit (arguments) paths; } // { inherit arguments; };
    writeShellScriptBin = name: text: build name { inherit text; } // { inherit text; };
    "lib.makeLibraryPath" =
      packages: builtins.concatStringsSep ":" (map (one: "${one.lib or one.out}/lib") packages);
  };

  valueOf =
    name:
    let
      entry = entries.${name};
    in
    builtins.trace "used ${name}" (functions.${name} or entry.value or (package name entry));

  steps = path: builtins.filter builtins.isString (builtins.split "\\." path);

  nested =
    names:
    let
      own = builtins.filter (one: builtins.length one.path == 1) names;
      below = builtins.filter (one: builtins.length one.path > 1) names;
      deeper =
        builtins.mapAttrs
          (_: list: nested (map (one: one // { path = builtins.tail one.path; }) list))
          (builtins.groupBy (one: builtins.head one.path) below);
      here = builtins.listToAttrs (
        map (one: {
          name = builtins.head one.path;
          value = valueOf one.name;
        }) own
      );
    in
    deeper
    // builtins.mapAttrs (
      name: value: if deeper ? ${name} then value // deeper.${name} else value
    ) here;
in
assert config.allowUnfree;
assert builtins.all (name: entries ? ${name}) (builtins.attrNames functions);
nested (
  map (name: {
    inherit name;
    path = steps name;
  }) (builtins.attrNames entries)
)

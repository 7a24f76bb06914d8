{ pkgs }:
let
  locks = ../tools/toolchain/locks;
  python = pkgs.python311;
  wheelsOf = group: builtins.fromJSON (builtins.readFile (locks + "/${group}-3.11.json"));
  fetchWheel =
    wheel:
    pkgs.fetchPypi (
      wheel
      // {
        format = "wheel";
        dist = wheel.python;
      }
    );

  environment =
    groups:
    pkgs.stdenv.mkDerivation {
      name = "glm-python-${builtins.concatStringsSep "-" groups}";
      wheels = map fetchWheel (builtins.concatMap wheelsOf groups);
      locks = map (group: locks + "/${group}-3.11.lock") groups;

      nativeBuildInputs = [
        pkgs.autoPatchelfHook
        python
      ];
      buildInputs = import ./libraries.nix { inherit pkgs; };
      dontUnpack = true;
      dontStrip = true;

      installPhase = ''
        runHook preInstall
        mkdir wheels
        for wheel in $wheels; do
          ln -s "$wheel" "wheels/$(stripHash "$wheel")"
        done
        pip=$(echo ${python}/lib/python3.11/ensurepip/_bundled/pip-*.whl)
        python -m venv --without-pip "$out"
        for lock in $locks; do
          "$out/bin/python" "$pip/pip" install --no-index --find-links wheels --no-deps \
            --no-compile --no-cache-dir --require-hashes --requirement "$lock"
        done
        runHook postInstall
      '';
    };
in
{
  base = environment [ "base" ];
  cuda = environment [
    "base"
    "cutlass"
  ];
}

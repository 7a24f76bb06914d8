{ system, config }:
let
  named = name: {
    inherit name;
    outPath = "/packages/${name}";
  };
  names = [
    "clang-tools"
    "cutlass"
    "futhark"
    "git"
    "makeWrapper"
    "nixfmt-rfc-style"
    "nixfmt-tree"
    "ruff"
    "terra"
    "valgrind"
  ];
  attributesOf = make: list: builtins.listToAttrs (map make list);
  modules =
    attributesOf
      (name: {
        inherit name;
        value = named "python-${name}";
      })
      [
        "aiohttp"
        "anthropic"
        "click"
        "fastapi"
        "httptools"
        "httpx"
        "hypothesis"
        "jinja2"
        "jsonschema"
        "llguidance"
        "msgspec"
        "llvmlite"
        "numpy"
        "openai"
        "orjson"
        "prometheus-client"
        "psutil"
        "pydantic"
        "pygments"
        "pygraphviz"
        "pyzmq"
        "pytest"
        "pytest-timeout"
        "rich"
        "safetensors"
        "schemathesis"
        "structlog"
        "tokenizers"
        "uvicorn"
        "uvloop"
      ]
    // {
      toPythonModule = package: package;
    };
  cuda =
    attributesOf
      (name: {
        inherit name;
        value = named "cuda-12.8-${name}";
      })
      [
        "cuda_cccl"
        "cuda_cudart"
        "cuda_nvcc"
        "cuda_nvrtc"
        "libcublas"
        "nccl"
      ];
in
assert config.allowUnfree;
attributesOf (name: {
  inherit name;
  value = named name;
}) names
// {
  inherit system;
  cudaPackages_12_8 = cuda;
  lib.licenses.asl20 = "Apache-2.0";
  scons.override = { python3Packages }: named "scons-${python3Packages.numpy.name}";
  python311 = {
    sitePackages = "lib/python3.11/site-packages";
    withPackages = choose: named "python3.11" // { chosen = map (one: one.name) (choose modules); };
  };
  stdenv = {
    cc = named "cc";
    mkDerivation = arguments: arguments // named (arguments.name or arguments.pname);
  };
  mkShell = arguments: arguments // named "shell";
  runCommand =
    name: arguments: script:
    arguments // named name // { inherit script; };
  symlinkJoin = arguments: named arguments.name // { members = map (one: one.name) arguments.paths; };
  writeShellScriptBin = name: script: named name // { inherit script; };
}

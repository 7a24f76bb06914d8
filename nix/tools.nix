{ pkgs }:
let
  python = import ./python.nix { inherit pkgs; };
  outputs = package: package.all or [ package ];

  cudaHome =
    cuda: compilerParts:
    pkgs.symlinkJoin {
      name = "cuda-home-${cuda.cudaMajorMinorVersion}";
      paths = builtins.concatMap outputs (
        [
          cuda.cuda_cccl
          cuda.cuda_cudart
          cuda.cuda_nvcc
          cuda.cuda_nvrtc
          cuda.libcublas
          cuda.nccl
        ]
        ++ compilerParts
      );
    };
in
{
  inherit python;

  lowering = [
    pkgs.futhark
    pkgs.terra
  ];

  check = [
    pkgs.git
    pkgs.nixfmt
    pkgs.valgrind
  ];

  cuda12 = cudaHome pkgs.cudaPackages_12_8 [ ];
  cuda13 = cudaHome pkgs.cudaPackages_13_0 [ pkgs.cudaPackages_13_0.cuda_crt ];
}

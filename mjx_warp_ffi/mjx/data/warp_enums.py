"""mujoco_warp's enums, under MuJoCo's names."""

from mujoco_warp import BiasType as BiasType
from mujoco_warp import BroadphaseFilter as BroadphaseFilter
from mujoco_warp import BroadphaseType as BroadphaseType
from mujoco_warp import ConeType as ConeType
from mujoco_warp import DeterminismType as DeterminismType
from mujoco_warp import DisableBit as DisableBit
from mujoco_warp import DynType as DynType
from mujoco_warp import EnableBit as EnableBit
from mujoco_warp import GainType as GainType
from mujoco_warp import GeomType as GeomType
from mujoco_warp import IntegratorType as IntegratorType
from mujoco_warp import JointType as JointType
from mujoco_warp import ObjType as ObjType
from mujoco_warp import OverflowType as OverflowType
from mujoco_warp import SolverType as SolverType
from mujoco_warp import TrnType as TrnType
from mujoco_warp._src.types import CamLightType as CamLightType
from mujoco_warp._src.types import ConstraintType as ConstraintType
from mujoco_warp._src.types import EqType as EqType
from mujoco_warp._src.types import SensorType as SensorType
from mujoco_warp._src.types import WrapType as WrapType
